package main

func internalStatefile() []mutation {
	return []mutation{
		{
			name:    "a file with cordons is absent while it is put aside",
			fix:     "return os.Link(",
			without: "return os.Rename(",
			test:    "TestPutAside",
		},
		{
			name:    "two cordons at once become one",
			fix:     "filelock.Hold(ctx, f.Path)",
			without: `filelock.Hold(ctx, fmt.Sprint(f.Path, &ctx))`,
			test:    "TestChangesAtOnce", pkg: "pkg/health",
		},
		{
			name:    "a shortage is taken for a file whose content is wrong",
			fix:     "unusable := untrusted || ",
			without: "unusable := err != nil || untrusted || ",
			test:    "TestUnreadable",
		},
		{
			name:    "what anybody can have written counts",
			fix:     "if f.Trusted {",
			without: "if false {",
			test:    "TestUnreadable",
		},
		{
			name:    "half a line of the journal of usage spoils the line after it",
			fix:     "err = f.Truncate(size)",
			without: "size, err = f.Seek(0, io.SeekEnd)",
			test:    "TestAnArbiterIsKilled|TestAFullDisk", pkg: "internal/usage",
		},
	}
}
