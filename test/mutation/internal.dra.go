package main

func internalDra() []mutation {
	return []mutation{
		{
			name:    "a device of a former cabling is withdrawn while a claim may have it",
			fix:     "if prepared[d.Name] != nil || at.Sub(d.Former) < formerFor {",
			without: "if false {",
			test:    "TestRecabled",
		},
		{
			name:    "arcs that no program can use are published",
			fix:     "size == 1 || slices.Contains",
			without: "true || slices.Contains",
			test:    "TestUsableSizes",
		},
		{
			name:    "arcs are withdrawn when the ring table is gone",
			fix:     "\tif inv.RingTable != nil {\n",
			without: "\tif true {\n",
			test:    "TestGoneCard",
		},
		{
			name:    "a taint that comes and goes has all waiting pods tried again",
			fix:     "if at.Sub(c.Ended) < linger {",
			without: "if false {",
			test:    "TestTaintsOverTime",
		},
		{
			name:    "an LPU that is free is not given for a minute more, and none is on a node that is new",
			fix:     "if c.Key == TaintHeld || c.Key == TaintLeases || slices",
			without: "if slices",
			test:    "TestHeld",
		},
		{
			name:    "slices are written as often as the node changes",
			fix:     "if len(p.writes) < writesMax {",
			without: "if true {",
			test:    "TestFourWritesInAMinute",
		},
		{
			name:    "another cabling is published that the next process does not know",
			fix:     "\t\tif vital {\n",
			without: "\t\tif vital && p.Path == \"\" {\n",
			test:    "TestMemoryBeforeSlices",
		},
		{
			name:    "a memory that is lost frees what prepared claims have",
			fix:     "if !known && !current[name] && len(members) > 0 {",
			without: "if known && !current[name] && len(members) > 0 {",
			test:    "TestLostMemory",
		},
		{
			name:    "a toleration of everything gets an LPU that is kept for leases",
			fix:     "s.set(d.members) >= 0 && !s.leased(d.members)",
			without: "s.set(d.members) >= 0",
			test:    "TestLeases",
		},
		{
			name:    "an LPU that is kept for leases is withdrawn while a claim has it",
			fix:     "c.Key == TaintLeases && !s.claimed[c.LPU] && ",
			without: "c.Key == TaintLeases && ",
			test:    "TestLeases",
		},
	}
}
