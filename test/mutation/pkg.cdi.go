package main

func pkgCdi() []mutation {
	return []mutation{
		{
			name:    "the name of a card that is gone stays",
			fix:     "\tfor i, h := range have.Devices {\n",
			without: "\tfor i, h := range have.Devices[:0] {\n",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "an edited path on the host stays",
			fix:     "hostPath(g.node) == hostPath(h.node)",
			without: "g.node.Path == h.node.Path",
			test:    "TestDrift",
		},
		{
			name:    "a node for every container stays",
			fix:     `givenBy("containerEdits", &spec.ContainerEdits),`,
			without: `givenBy("containerEdits", &specs.ContainerEdits{}),`,
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a conflict about one device leaves the others as they were",
			fix:     "conflict != nil && !ok {",
			without: "conflict != nil || ok {",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a strange name in our file stays",
			fix:     "return c.exists(hostPath(g.node))",
			without: "return false",
			test:    "TestDrift",
		},
		{
			name:    "a name that a spec made now would not have leads anywhere",
			fix:     "slices.ContainsFunc(lpus, func(l discovery.LPU) bool { return l.Address == owner.Address })",
			without: "len(lpus) >= 0",
			test:    "TestStatesOfSpecs",
		},
		{
			name:    "directories are read in the default order",
			fix:     "next.resolve(read, contents)",
			without: "read = dirs\n\t\t\tnext.resolve(read, contents)",
			test:    "TestStatesOfSpecs",
		},
		{
			name:    "a result of another scan is taken",
			fix:     "r.After(after) && ",
			without: "",
			test:    "TestAResultIsTakenOnlyFromALaterScan",
		},
		{
			name:    "serve looks at its own file only, whatever lies beside it",
			fix:     "if f.IsAlone(orders) {",
			without: "if true {",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a spec names a ring table that is not there",
			fix:     `table != "" {`,
			without: `table == "a table" {`,
			test:    "TestRingTablesOfASpec",
		},
		{
			name:    "a device of one LPU brings its ring table into containers of several",
			fix:     "PartOf(inv, []int{card}, o))",
			without: "EditsOf(inv, []int{card}, o))",
			test:    "TestRingTablesOfASpec",
		},
		{
			name:    "a spec names ring tables that cannot be written",
			fix:     "\t\to.TablesIn = root\n",
			without: "",
			test:    "TestRingTablesFollowTheCabling", pkg: "internal/node",
		},
		{
			name:    "the ring table of a container in pieces is gone after a boot",
			fix:     "\t\tremakeTables(root, inv)\n",
			without: "",
			test:    "TestRingTableAfterABoot",
		},
		{
			name:    "a pod with the ring table of former cables is not named",
			fix:     "now.HostPath != m.Table",
			without: "false",
			test:    "TestStaleRingTables", pkg: "pkg/plugin",
		},
		{
			name:    "a link in the place of our spec is to be mended by a refresh that refuses it",
			fix:     "if v.isOwn(path) {\n\t\t\tmessage, remedy",
			without: "if false {\n\t\t\tmessage, remedy",
			test:    "TestOddFiles",
		},
	}
}
