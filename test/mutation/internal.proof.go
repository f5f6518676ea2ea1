package main

func internalProof() []mutation {
	return []mutation{
		{
			name:    "a node in a container that is another LPU's counts as opened",
			fix:     "known && (major != n.Major || minor != n.Minor)",
			without: "known && false",
			test:    "TestDifferences",
		},
		{
			name:    "a container that got nothing does not show that CDI is off",
			fix:     "a.Nothing = kept == 0 && len(p.Nodes) > 0",
			without: "a.Nothing = kept < 0",
			test:    "TestIgnoredDevices",
		},
		{
			name:    "a proof waits for an end of its input that nerdctl does not pass on",
			fix:     "json.NewDecoder(io.LimitReader(r, promiseMax)).Decode(&p)",
			without: "func() error {\n\t\tdata, err := io.ReadAll(r)\n\t\treturn errors.Join(err, json.Unmarshal(data, &p))\n\t}()",
			test:    "TestInside",
		},
		{
			name:    "an engine that starts no container at all has failed with the LPUs",
			fix:     "\tif without != nil {\n\t\tr.State, r.Why = Unprovable",
			without: "\tif false {\n\t\tr.State, r.Why = Unprovable",
			test:    "TestControl",
		},
		{
			name:    "a proof that was killed leaves its containers to nobody",
			fix:     "return err != nil || lives != start",
			without: "return err != nil && lives != start && false",
			test:    "TestLeftBehind",
		},
		{
			name:    "a proof removes what belongs to one that runs beside it",
			fix:     "return err != nil || lives != start",
			without: "return err != nil || lives == start",
			test:    "TestLeftBehind",
		},
		{
			name:    "a library that no mount brings is left to the image",
			fix:     "case !slices.ContainsFunc(systemDirs(), isSystem):",
			without: "case false && !slices.ContainsFunc(systemDirs(), isSystem):",
			test:    "TestLibraries",
		},
		{
			name:    "a proof that is interrupted leaves its container",
			fix:     "context.WithTimeout(context.WithoutCancel(ctx), cleanTime)\n\t\tdefer cancel()",
			without: "context.WithTimeout(ctx, cleanTime)\n\t\tdefer cancel()",
			test:    "TestSlowEngine",
		},
	}
}
