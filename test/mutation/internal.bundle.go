package main

func internalBundle() []mutation {
	return []mutation{
		{
			name:    "a bundle has a link out of its root",
			fix:     "\t\t\tif len(at) <= 1 { // root/\n\t\t\t\treturn errLeadsOut\n\t\t\t}\n",
			without: "\t\t\tif len(at) == 0 {\n\t\t\t\tcontinue\n\t\t\t}\n",
			test:    "TestReadRefuses",
		},
		{
			name:    "a bundle unpacks without an end",
			fix:     "&limited{r: unzipped, left: TotalMax}",
			without: "&limited{r: unzipped, left: 1 << 62}",
			test:    "TestReadRefuses",
		},
		{
			name:    "values of others' variables are in a bundle",
			fix:     "\t\treturn isOurs(value)\n",
			without: "\t\treturn true\n",
			test:    "TestSecretsStayOut",
		},
		{
			name:    "a device is a regular file in a replay",
			fix:     "\tr.Files[inode] = s.original()\n",
			without: "\t_ = inode\n",
			test:    "TestUnpackKeepsWhatFilesWere",
		},
	}
}
