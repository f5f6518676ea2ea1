package main

// mutation is a fix that is taken out: in a file, the text of the fix is replaced.
type mutation struct {
	name         string // what goes wrong without the fix
	file         string // from the root of the repository
	fix, without string
	test, pkg    string // that must fail then
}

const (
	world    = "TestAWorldThatChanges"
	program  = "./cmd/lpuctl"
	driftGo  = "pkg/cdi/drift.go"
	nodeSpec = "pkg/node/spec.go"
)

// mutations are the fixes that keep lpuctl right while the node changes.
func mutations() []mutation {
	return []mutation{
		{
			"the name of a card that is gone stays", driftGo,
			"	for i, h := range have.Devices {\n", "	for i, h := range have.Devices[:0] {\n", world, program,
		},
		{
			"an edited path on the host stays", driftGo,
			"hostPath(w.node) != hostPath(h.node)", "w.node.Path != h.node.Path", world, program,
		},
		{
			"a node for every container stays", "pkg/cdi/validate_effective.go",
			`givenBy("containerEdits", &spec.ContainerEdits),`, `givenBy("containerEdits", &specs.ContainerEdits{}),`, world, program,
		},
		{
			"a ring table that breaks switches the rings off", "pkg/discovery/ringtable.go",
			"if s.bindRings(inv, last) {", "if false {", world, program,
		},
		{
			"the absent cards of the last cabling hide cards that are there", "pkg/discovery/scan.go",
			"slices.Clone(found)", "found", world, program,
		},
		{
			"a conflict about one device leaves the others as they were", "pkg/cdi/lock.go",
			"conflict != nil && !ok {", "conflict != nil || ok {", world, program,
		},
		{
			"a conflict is not noticed", nodeSpec,
			"bad = append(bad, c.Devices...)", "_ = c", world, program,
		},
		{
			"serve does not renew variables when it starts", "pkg/node/snapshot.go",
			"upkeep: upkeep{renew: true},", "upkeep: upkeep{},", world, program,
		},
		{
			"what cannot be handed out is preferred", "pkg/plugin/calls.go",
			"		return err != nil\n", "		return false\n", world, program,
		},
		{
			"a spec of no LPU stays", nodeSpec,
			"		_, err = held.Remove()\n", "", world, program,
		},
		{
			"a strange name in our file stays", driftGo,
			"case slices.ContainsFunc(strange, exists):\n			d.Wrong = append(d.Wrong, h.Name)\n		default:",
			"default:", "TestDrift", "./pkg/cdi",
		},
		{
			"a lock that others can open is used", "pkg/cdi/lock.go",
			"err == nil && info.Mode().Perm()&0o077 == 0", "err == nil && info != nil", "TestTheLockIsItsOwnersAlone", "./pkg/cdi",
		},
		{
			"a result of another scan is taken", "pkg/cdi/lock.go",
			"r.After(after) && ", "", "TestAResultIsTakenOnlyFromALaterScan", "./pkg/cdi",
		},
		{
			"a wrong name waits", nodeSpec,
			"	case len(d.Wrong) > 0:\n		return true\n", "", "TestTwoProgramsThatDisagree", "./pkg/node",
		},
		{
			"two programs write without end", nodeSpec,
			">= writePeriod", ">= 0", "TestTwoProgramsThatDisagree|TestACardThatFlaps", "./pkg/node",
		},
		{
			"new numbers under an old name are not noticed", nodeSpec,
			"check.drift.Wrong = append(check.drift.Wrong, renumbered...)", "", "TestNewNumbersNeedANewFile", "./pkg/node",
		},
		{
			"the health of another boot is taken for this one's", "pkg/node/memory.go",
			"r.Boot != host.Now().Boot", "false", "TestHealthAtTheStart", "./pkg/node",
		},
		{
			"the first list does not wait", "pkg/node/snapshot.go",
			"s.Settled = before.Settled || !n.doubtful(inv) ||", "s.Settled = true ||", "TestHealthAtTheStart", "./pkg/node",
		},
		{
			"the first reading of a fault that may pass counts", "pkg/discovery/watch.go",
			"c.health = HealthUnknown\n			}\n			h[l.Address] = c", "_ = c\n			}\n			h[l.Address] = c",
			"TestTheFirstReadingOfAFaultThatMayPass", "./pkg/discovery",
		},
		{
			"a node of another function is verified", "pkg/discovery/node.go",
			"if device == function || strings.HasPrefix(device, function+\"/\") {", "if device != \"\" || function != \"\" {",
			"TestWhoseNodeItIs|TestAPathRuleThatGuesses", "./pkg/discovery",
		},
		{
			"a card that cannot answer is asked for its sensors", "pkg/discovery/sensors.go",
			"	if !lpu.answers() {\n", "	if lpu.Driver == \"\" {\n", "TestSensorsOfACardThatCannotAnswer", "./pkg/discovery",
		},
		{
			"the sensors of a card that has hung are read at once", "pkg/discovery/sensors.go",
			"case l.has(finding.ReadStalled):\n			kept", "case l.has(finding.ReadStalled):\n			_", "TestACardThatHangsIsLeftAlone",
			"./pkg/discovery",
		},
		{
			"sensors are read at every scan", "pkg/discovery/sensors.go",
			"if known && s.now-last.at < sensorPeriod &&", "if known && s.now < last.at &&", "TestSensorsAreReadSeldom", "./pkg/discovery",
		},
		{
			"a copy of one reading of the sensors counts as another one", "pkg/discovery/sensors.go",
			"case sensors == nil, sensors.Findings(\"\", w.options.Policy).HasErrors():", "case sensors == nil:",
			"TestSensorsAreReadSeldom", "./pkg/discovery",
		},
		{
			"the sensors of a card are read before it is known to answer", "pkg/discovery/card.go",
			"s.readDriver, s.probe}\n	if s.Sensors {\n		stages = append(stages, s.readSensors)",
			"s.readDriver, s.probe}\n	if s.Sensors {\n		stages = slices.Insert(stages, 2, s.readSensors)",
			"TestSensorsOfACardThatCannotAnswer", "./pkg/discovery",
		},
		{
			"a node that is replaced meanwhile is verified", "pkg/discovery/node.go",
			"for range nodeTries {", "for range 0 {", "TestNodesThatChangeMeanwhile", "./pkg/discovery",
		},
		{
			"a function whose ids cannot be read renumbers the others", "pkg/discovery/scan.go",
			"	lpus = append(lpus, s.managed(lpus)...)\n", "", "TestIDsThatCannotBeRead", "./pkg/discovery",
		},
		{
			"an overflow of inotify is not noticed", "pkg/discovery/watch.go",
			"hasChanged = err != nil", "_ = err", "TestWaitAfterAnOverflow", "./pkg/discovery",
		},
		{
			"Allocate gives LPUs that are not connected", "pkg/plugin/calls.go",
			"pieces > 1 || !s.node.Fabric.Cabled()", "pieces < 0", "TestInvariant16Unconnected", "./pkg/plugin",
		},
		{
			"the list of an instance that ended stays", "pkg/plugin/server.go",
			"go s.Plugin.resend()", "_ = s.Plugin.resend", "TestInvariant8TheLastListIsThatOfTheOneThatStays", "./pkg/plugin",
		},
	}
}
