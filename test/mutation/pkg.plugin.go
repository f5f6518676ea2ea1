package main

func pkgPlugin() []mutation {
	return []mutation{
		{
			name:    "claims are refused while many ask the kubelet",
			fix:     "said.Message() != rateLimited {",
			without: `said.Message() != "" {`,
			test:    "TestPodsOfABusyKubelet",
		},
		{
			name:    "what the kubelet said of pods never gets old",
			fix:     "s.Plugin.Node.Now().Sub(p.readAt) > node.MaxAge",
			without: "false",
			test:    "TestPodMetrics",
		},
		{
			name:    "registered is said before the kubelet was sent a list",
			fix:     "\tk.streams.Add(1)\n",
			without: "\tk.streams.Add(1)\n\tk.openOnce.Do(func() { close(k.opened) })\n",
			test:    "TestOpenedByTheFirstList",
		},
		{
			name:    "another plugin is connected to at each look",
			fix:     "!known || now-a.at > rivalPeriod",
			without: "!known || true",
			test:    "TestRivals",
		},
		{
			name:    "LPUs are handed out while CDI is off, because the snapshot is from before",
			fix:     "if len(withheld) > 0 || !d.Healthy",
			without: "if !d.Healthy",
			test:    "TestCDIOffWhileTheMachineCannotBeRead",
		},
		{
			name:    "what cannot be handed out is preferred",
			in:      "Plugin.prefer",
			fix:     "\t\treturn err != nil\n",
			without: "\t\treturn false\n",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a cordoned LPU is preferred",
			fix:     "s.refuse(card, !slices.Contains(must, card))",
			without: "s.refuse(card, false)",
			test:    "TestCordon",
		},
		{
			name:    "a cordon takes an LPU from the pod that has it",
			fix:     "s.refuse(card, !slices.Contains(must, card))",
			without: "s.refuse(card, true)",
			test:    "TestCordon",
		},
		{
			name:    "a cordoned LPU is handed out",
			fix:     "p.usable(s, c.DevicesIds, true)",
			without: "p.usable(s, c.DevicesIds, false)",
			test:    "TestCordon",
		},
		{
			name:    "a container with a cordoned LPU is not started again",
			fix:     "p.usable(s, r.DevicesIds, false)",
			without: "p.usable(s, r.DevicesIds, true)",
			test:    "TestCordon",
		},
		{
			name:    "Allocate gives LPUs that are not connected",
			fix:     "pieces > 1 || !s.Fabric.Cabled()",
			without: "pieces < 0",
			test:    "TestInvariant16Unconnected",
		},
		{
			name:    "the list of an instance that ended stays",
			fix:     "go s.Plugin.resend()",
			without: "_ = s.Plugin.resend",
			test:    "TestInvariant8TheLastListIsThatOfTheOneThatStays",
		},
		{
			name:    "the plugin does not say that a program cannot use the number of LPUs",
			fix:     `why := allocate.Unusable(s.Inventory, cards); why != ""`,
			without: `why := ""; why != ""`,
			test:    "TestUnusableSizeIsSaid",
		},
		{
			name:    "Allocate hands out an LPU that a claim has got since the last look",
			fix:     "\tif p.Node.Gate == nil {",
			without: "\tif true {",
			test:    "TestChangeOver",
		},
		{
			name:    "a pod that was made again is named for the table that the one before it lost",
			fix:     "\tp.mark(s, cards, cdi.MarkRingTables)\n\tif t := p.putTable",
			without: "\tif t := p.putTable",
			test:    "TestDetached",
		},
		{
			name:    "the ring table of a container is gone after a boot",
			fix:     "len(unknown) == 0 {\n\t\t\tp.putTable(s, cards)",
			without: "len(unknown) < 0 {\n\t\t\tp.putTable(s, cards)",
			test:    "TestRingTableOfAContainer",
		},
		{
			name:    "without metrics of pods the ring tables of containers are gone after a boot",
			fix:     "askForPods(ctx, client, s.Resource); err == nil {",
			without: "askForPods(ctx, client, s.Resource); err != nil {",
			test:    "TestRingTablesWithoutMetrics",
		},
		{
			name:    "a container that starts again seems to have the ring table of now",
			fix:     "p.mark(s, cards, cdi.MarkStart)",
			without: "p.mark(s, cards, cdi.MarkRingTables)",
			test:    "TestStaleRingTables",
		},
	}
}
