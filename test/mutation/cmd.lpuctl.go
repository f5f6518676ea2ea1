package main

func cmdLpuctl() []mutation {
	return []mutation{
		{
			name:    "a change of the config file while serve starts is not seen",
			fix:     "a.followConfig()\n\tc, options, err := a.serveConfig(cmd)\n",
			without: "configFile{}\n\tc, options, err := a.serveConfig(cmd)\n\tconfig = a.followConfig()\n",
			test:    "TestServeSeesAChangeWhileItStarts",
		},
		{
			name:    "a config file is read while it is written",
			fix:     "f.seen == before\n",
			without: "f.seen != before\n",
			test:    "TestConfigFileAtRest",
		},
		{
			name:    "a container's table has an LPU that is not there",
			fix:     "withNodes(kind, inv, lpus)",
			without: "inv.Resolve(kind, lpus...)",
			test:    "TestConvertOfWhatIsThere",
		},
		{
			name:    "a table for HyperDex numbers an LPU that is not there",
			fix:     " || !l.Absent) {",
			without: " || !l.Absent || true) {",
			test:    "TestConvertOfWhatIsThere",
		},
		{
			name:    "HyperDex takes several rings for one",
			fix:     "return write(b.cabling, cards), nil",
			without: "_ = write\n\t\treturn ring.WriteHyperdex(b.cabling.Renumber(cards)), nil",
			test:    "TestConvertOfSeveralRings",
		},
		{
			name:    "SIGHUP ends a serve that has just begun",
			fix:     "cli.HeedHangUp(context.Background())",
			without: "context.Background()\n\t_ = cli.HeedHangUp",
			test:    "TestHangUpAtTheStart",
		},
		{
			name:    "a reload does not reach the feature file",
			fix:     "\td.features.Follow(ctx, d.app.featurePlan(c))\n",
			without: "",
			test:    "TestReloadKeepsWhatDidNotChange",
		},
		{
			name:    "a kill of the arbiter ends all leases",
			fix:     "return &cli.ExitError{Code: exitStopped}",
			without: "return nil",
			test:    "TestTheUnitKnowsTheArbiter",
		},
		{
			name:    "a fault of the config file gives away LPUs that the hook has not cleaned",
			fix:     "\t\tarbiter.Hook = &lease.Hook{}",
			without: "\t\t_ = &lease.Hook{}",
			test:    "TestAFaultyConfigForgetsNoHook",
		},
		{
			name:    "a user forges lines of what list and queue print by the name of a process",
			fix:     "host.NotText(r) || r < ' '",
			without: "host.NotText(r)",
			test:    "TestWithProgram",
		},
		{
			name:    "an arbiter whose faulty config was mended runs no hook",
			fix:     "cmp.Or(err, a.learnHook(arbiter.Hook))",
			without: "cmp.Or(err, nil)",
			test:    "TestAMendedConfigIsRead",
		},
		{
			name:    "the table of LPUs is wider than the terminal",
			fix:     "return t.WriteFitting(heads, rows)",
			without: "return t.WriteWhole(heads, rows)",
			test:    "TestListOnTerminals",
		},
		{
			name:    "lpuctl alone hides that the spec differs from the hardware",
			fix:     "have == nil:\n\t\treturn noSpec, \"CDI",
			without: "have == nil:\n\t\treturn rightSpec, \"CDI",
			test:    "TestGlance",
		},
		{
			name:    "the whole spec is shown as additions where none is in place",
			fix:     "have != nil || want == nil {",
			without: "have != nil || want != nil || want == nil {",
			test:    "TestDiffWithoutASpec",
		},
		{
			name:    "health --watch ends with an empty error",
			fix:     "err != nil && err.Error() != \"\" { // what was found",
			without: "err != nil { // what was found",
			test:    "TestHealthWatchOfASickLPU",
		},
		{
			name:    "get lpus asks for an LPU of that name",
			fix:     "cmd.CalledAs() == \"get\"",
			without: "cmd.CalledAs() == \"\"",
			test:    "TestHabits",
		},
	}
}
