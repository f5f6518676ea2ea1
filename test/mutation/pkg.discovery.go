package main

func pkgDiscovery() []mutation {
	return []mutation{
		{
			name:    "a node in the queue of a socket is free",
			fix:     `case strings.HasPrefix(file, "socket:"):`,
			without: "case false:",
			test:    "TestHidden",
		},
		{
			name:    "a node that is mapped into memory is free",
			fix:     `return "has a node of an LPU in its memory"`,
			without: `return ""`,
			test:    "TestHidden",
		},
		{
			name:    "a node that is open under another name is free",
			fix:     "p.numbers[number]",
			without: "p.numbers[number+1]",
			test:    "TestAnOpenNodeIsKnownByItsNumber",
		},
		{
			name:    "an open file of a server that does not answer stops the look for users",
			fix:     "return !p.mounts[i].mayHang()",
			without: "return true",
			test:    "TestWhatMayHangIsNotAsked",
		},
		{
			name:    "a node that only a thread has open is free",
			fix:     "thread == pid || o.share(pid, thread)",
			without: "true",
			test:    "TestANodeInAThread",
		},
		{
			name:    "a process whose open files may not be seen has none",
			fix:     "return held, failed",
			without: "continue",
			test:    "TestHiddenUsers",
		},
		{
			name:    "a ring table that breaks switches the rings off",
			fix:     "if s.bindRings(inv, last) {",
			without: "if false {",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "the absent cards of the last cabling hide cards that are there",
			fix:     "slices.Clone(found)",
			without: "found",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a lost function is flashed",
			fix:     "if golden {",
			without: "if !golden {",
			test:    "TestLostFunction",
		},
		{
			name:    "a virtual function is an LPU without a word",
			fix:     "\ts.reportSameCard(inv.LPUs)\n",
			without: "",
			test:    "TestSameCard",
		},
		{
			name:    "driver_override is read while the kernel resets the function",
			fix:     "enabled > 0 || l.Reading.AllOnes",
			without: "enabled > 1000",
			test:    "TestDriverOverride",
		},
		{
			name:    "HyperDex' own table is not looked at while another one is installed",
			fix:     "\t\ts.judgeHyperdex(ctx)\n",
			without: "",
			test:    "TestHyperdexReadsItsOwnTable", pkg: "cmd/lpuctl",
		},
		{
			name:    "an inventory forgets on which side LPUs are cabled",
			fix:     "made.Leftward, made.OneCable = r.Leftward(),",
			without: "made.Leftward, made.OneCable = false,",
			test:    "TestLastRingIsTheSameCabling",
		},
		{
			name:    "an inventory takes two LPUs with one cable for a ring",
			fix:     "r.Leftward(), r.Closed && !r.Looped()",
			without: "r.Leftward(), false",
			test:    "TestLastRingIsTheSameCabling",
		},
		{
			name:    "a node of another function is verified",
			fix:     `if device == function || strings.HasPrefix(device, function+"/") {`,
			without: `if device != "" || function != "" {`,
			test:    "TestWhoseNodeItIs|TestAPathRuleThatGuesses",
		},
		{
			name:    "a card that cannot answer is asked for its sensors",
			in:      "scan.readSensors",
			fix:     "\tif !lpu.answers() {\n",
			without: "\tif lpu.Driver == \"\" {\n",
			test:    "TestSensorsOfACardThatCannotAnswer",
		},
		{
			name:    "another process reads no sensors",
			fix:     "s.askDriver, s.readSensors}",
			without: "s.askDriver}",
			test:    "TestApartFindsTheSame",
		},
		{
			name:    "a slow card delays the others",
			fix:     "\t\tif e.readBy(soon) {\n",
			without: "\t\tif endsWithin(ctx, s.CardDeadline, e.done, e.asleep); e.readBy(soon) || true {\n",
			test:    "TestASlowCardDelaysNoOther",
		},
		{
			name:    "the sensors of a card are read before it is known to answer",
			fix:     "[]stage{s.readDriver, s.probe, s.readSensors}",
			without: "[]stage{s.readDriver, s.readSensors, s.probe}",
			test:    "TestSensorsOfACardThatCannotAnswer",
		},
		{
			name:    "a node that is replaced meanwhile is verified",
			fix:     "for range nodeTries {",
			without: "for range 0 {",
			test:    "TestNodesThatChangeMeanwhile",
		},
		{
			name:    "a function whose ids cannot be read renumbers the others",
			fix:     "\tlpus = append(lpus, s.managed(lpus)...)\n",
			without: "",
			test:    "TestIDsThatCannotBeRead",
		},
		{
			name:    "a card that is asleep is read",
			fix:     "\tif l.Reading.Asleep() {\n",
			without: "\tif false {\n",
			test:    "TestBrokenCard",
		},
		{
			name:    "no metric says since when a cable is down",
			fix:     "has && (!known || record.Since < since)",
			without: "has",
			test:    "TestCables", pkg: "internal/node",
		},
		{
			name:    "a container whose ring table was detached is not named",
			fix:     "inside.file(path) == tables[path] }",
			without: "inside.file(path) == tables[path] && inside.at(path).point == path }",
			test:    "TestLostTables",
		},
		{
			name:    "a ring table is mounted on a link",
			fix:     "s.real(file) != path.Join(s.real(m.HostPath), below)",
			without: "false",
			test:    "TestTablePlace",
		},
		{
			name:    "a card that is asleep is called healthy",
			fix:     "l.Health == Healthy && l.Reasons.Has(finding.Asleep)",
			without: "false",
			test:    "TestFaults",
		},
	}
}
