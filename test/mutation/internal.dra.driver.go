package main

func internalDraDriver() []mutation {
	return []mutation{
		{
			name:    "the DRA driver is ready though the machine cannot be read",
			fix:     "if err := d.Node.Unread(); err != nil {",
			without: "if err := error(nil); err != nil {",
			test:    "TestUnreadMachine",
		},
		{
			name:    "a claim gets an LPU that a plugin which knows no owner gave away meanwhile",
			fix:     "\td.Claims.Confirm = d.Gate.Ask\n",
			without: "",
			test:    "TestOwner",
		},
		{
			name:    "a claim that has lost all files is forgotten",
			fix:     "\t\tif state != seen { // files",
			without: "\t\tif false { // files",
			test:    "TestLostFilesAreWritten",
		},
		{
			name:    "a leased LPU stays published",
			fix:     "return d.Gate.Look().Leased(a)",
			without: "return false",
			test:    "TestLeasedLeavesTheSlices",
		},
		{
			name:    "a toleration of everything gets a cordoned LPU",
			fix:     "t.Key == dra.TaintCordoned && value",
			without: "value",
			test:    "TestCordonedIsPreparedByNameOnly",
		},
		{
			name:    "a toleration of the cordon gets an LPU that is kept for leases",
			fix:     "!l.Cordoned.SetApart && names(",
			without: "names(",
			test:    "TestCordonedIsPreparedByNameOnly",
		},
		{
			name:    "the DRA driver gives out LPUs while CDI is off",
			fix:     "d.Node.AskRuntime(d.OnCDIOff)",
			without: "d.Node.ForgetRuntime()",
			test:    "TestCDIOff",
		},
		{
			name:    "arcs are published though nobody counts their LPUs",
			fix:     "return singles, nil",
			without: "return arcs, nil",
			test:    "TestWithoutCounters",
		},
		{
			name:    "slices stay whose counters were dropped",
			fix:     "\t\td.dropped.Store(int32(modeOf(fields.DesiredSlice)))\n",
			without: "",
			test:    "TestDroppedFields",
		},
		{
			name:    "slices belong to a node that was deleted",
			fix:     "if err := p.removeOrphans(ctx, n.UID); err != nil {",
			without: "if err := error(nil); err != nil {",
			test:    "TestNodeMadeAnew",
		},
		{
			name:    "a node that was made anew has no slices for long",
			fix:     "if p.renewed.Swap(false) {",
			without: "if false {",
			test:    "TestNodeMadeAnew",
		},
		{
			name:    "a claim gets an LPU that a pod of the device plugin has",
			fix:     "lpus := d.members(wanted); !d.Claims.Prepared(wanted.UID)",
			without: "lpus := d.members(wanted); false",
			test:    "TestOwner",
		},
		{
			name:    "a container does not start again after the spec directory was wiped",
			fix:     "\tfor _, file := range files {\n",
			without: "\tfor _, file := range files[:0] {\n",
			test:    "TestFilesComeBack",
		},
		{
			name:    "a claim is taken back while its pod runs",
			fix:     "used, err := d.usedByPod(ctx, c); used || err != nil",
			without: "used, err := d.usedByPod(ctx, c); !used && err != nil",
			test:    "TestCollect",
		},
		{
			name:    "another claim of the same name keeps LPUs for ever",
			fix:     "return string(have.UID) != c.UID",
			without: "return have == nil",
			test:    "TestCollect",
		},
		{
			name:    "a driver whose socket was removed is never asked again",
			fix:     "err != nil || !os.SameFile(now, before[i])",
			without: "err == nil && !os.SameFile(now, before[i])",
			test:    "TestSocketsComeBack",
		},
	}
}
