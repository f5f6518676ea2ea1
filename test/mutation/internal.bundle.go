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
		{
			name:    "words of a file that cannot be parsed are in a bundle",
			fix:     "\t\t\tcase !isLiteral:\n\t\t\t\tout[i+j] = 'a'\n",
			without: "\t\t\tcase !isLiteral:\n",
			test:    "TestShape",
		},
		{
			name:    "a file that cannot be parsed is not in a bundle",
			fix:     "\tif errors.Is(err, errUnparsed) {\n",
			without: "\tif false {\n",
			test:    "TestSecretsStayOut",
		},
		{
			name:    "what follows the first document of a file is in a bundle",
			fix:     "i < len(lines) && len(faults) > 0;",
			without: "i < len(lines) && len(faults) > 100;",
			test:    "TestSecretsStayOut",
		},
		{
			name:    "what stands below a key that no config has is in a bundle",
			fix:     "above[i]+\"/*\") {\n\t\t\t\t\treturn false\n",
			without: "above[i]+\"/*\") {\n\t\t\t\t\treturn true\n",
			test:    "TestSecretsStayOut",
		},
		{
			name:    "names of pods are in a bundle",
			fix:     "n.inPods(n.secrets(text))",
			without: "n.secrets(text)",
			test:    "TestAnswersHaveStandIns",
		},
		{
			name:    "a file that is too large is empty in a replay",
			fix:     "\tif s.Size > 0 { // it takes no room: there is nothing in it\n",
			without: "\tif s.Size < 0 {\n",
			test:    "TestTooLarge",
		},
	}
}
