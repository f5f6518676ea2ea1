package main

func internalWholefile() []mutation {
	return []mutation{
		{
			name:    "a full disk loses the only copy of a table",
			fix:     "errors.Join(err, overwrite(f, old))",
			without: "errors.Join(err, overwrite(f, old[:0]))",
			test:    "TestOverwrite",
		},
		{
			name:    "a last cabling that others may write to stays so",
			fix:     "have, err := ReadTrusted(path, int64(len(data)))",
			without: "have, err := Read(path, int64(len(data)))",
			test:    "TestKeep",
		},
		{
			name:    "a file that could not be read on a recorded machine is empty there",
			fix:     "\tif original := recorded.Load(); original != nil {\n",
			without: "\tif original := recorded.Load(); original != nil && f == nil {\n",
			test:    "TestReplay",
		},
	}
}
