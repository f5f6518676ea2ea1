package main

// mutation is a fix that is taken out: in a file, the text of the fix is replaced.
type mutation struct {
	name         string // what goes wrong without the fix
	file         string // from the root of the repository
	fix, without string
	test, pkg    string // that must fail then
}

const (
	world     = "TestAWorldThatChanges"
	program   = "./cmd/lpuctl"
	compareGo = "pkg/cdi/compare.go"
	nodeSpec  = "pkg/node/spec.go"

	judgeGo   = "pkg/health/judge.go"
	signalsGo = "pkg/health/signals.go"
	cardsGo   = "pkg/discovery/cards.go"
	healthPkg = "./pkg/health"
	draPkg    = "./pkg/dra"
	eventsGo  = "pkg/discovery/events.go"
	featureGo = "cmd/lpuctl/serve_nfd.go"

	claimGo   = "pkg/dra/claim/store.go"
	restoreGo = "pkg/dra/claim/restore.go"
	claimPkg  = "./pkg/dra/claim"
	gateGo    = "pkg/owner/gate.go"
	ownerPkg  = "./pkg/owner"

	driverDir = "pkg/dra/driver/"
	driverPkg = "./pkg/dra/driver"
)

// mutations are the fixes that keep lpuctl right while the node changes.
func mutations() []mutation {
	return []mutation{
		{
			"the name of a card that is gone stays", compareGo,
			"	for i, h := range have.Devices {\n", "	for i, h := range have.Devices[:0] {\n", world, program,
		},
		{
			"an edited path on the host stays", compareGo,
			"hostPath(g.node) == hostPath(h.node)", "g.node.Path == h.node.Path", "TestDrift", "./pkg/cdi",
		},
		{
			"a node for every container stays", compareGo,
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
			"a result of the self-check never gets old", "pkg/runtimes/result.go",
			"now.SinceBoot-r.SinceBoot > limit", "false", "TestResultFileIsFollowed", "./pkg/runtimes",
		},
		{
			"a change of the config file while serve starts is not seen", "cmd/lpuctl/serve.go",
			"a.followConfig()\n	c, options, err := a.serveConfig(cmd)\n",
			"configFile{}\n	c, options, err := a.serveConfig(cmd)\n	config = a.followConfig()\n", "TestServeSeesAChangeWhileItStarts", program,
		},
		{
			"a config file is read while it is written", "cmd/lpuctl/serve_config.go",
			"f.seen == before\n", "f.seen != before\n", "TestConfigFileAtRest", program,
		},
		{
			"a reload does not reach the feature file", "cmd/lpuctl/serve.go",
			"	d.features.follow(ctx, d.app.featurePlan(c))\n", "", "TestReloadKeepsWhatDidNotChange", program,
		},
		{
			"a feature file expires", featureGo,
			"left > p.lifetime/2 && ", "left > 0 && ", "TestFeatureFileInTime", program,
		},
		{
			"a clock that was set back keeps labels for days", featureGo,
			" && left <= p.lifetime+slack", "", "TestFeatureFileInTime", program,
		},
		{
			"two instances take the feature file from each other", featureGo,
			"(there == body || !outdated)", "there == body", "TestFeatureFileOfTwo", program,
		},
		{
			"a feature directory that was made anew is not noticed", featureGo,
			"	if !f.inReach {\n", "	if true {\n", "TestFeatureDirectoryCutOff", program,
		},
		{
			"a feature directory that was never there ends serve again and again", featureGo,
			"f.dir, f.inReach = dir, err == nil", "f.dir, f.inReach = dir, true", "TestFeatureDirectoryCutOff", program,
		},
		{
			"claims are refused while many ask the kubelet", "pkg/plugin/pods.go",
			"said.Message() != rateLimited {", "said.Message() != \"\" {", "TestPodsOfABusyKubelet", "./pkg/plugin",
		},
		{
			"what the kubelet said of pods never gets old", "pkg/plugin/pods.go",
			"s.Plugin.Node.Now().Sub(p.readAt) > node.MaxAge", "false", "TestPodMetrics", "./pkg/plugin",
		},
		{
			"registered is said before the kubelet was sent a list", "pkg/plugin/server.go",
			"	k.streams.Add(1)\n", "	k.streams.Add(1)\n	k.openOnce.Do(func() { close(k.opened) })\n", "TestOpenedByTheFirstList",
			"./pkg/plugin",
		},
		{
			"another plugin is connected to at each look", "pkg/plugin/rivals.go",
			"!known || now-a.at > rivalPeriod", "!known || true", "TestRivals", "./pkg/plugin",
		},
		{
			"LPUs are handed out while CDI is off, because the snapshot is from before", "pkg/plugin/calls.go",
			"if len(withheld) > 0 || !d.Healthy", "if !d.Healthy", "TestCDIOffWhileTheMachineCannotBeRead", "./pkg/plugin",
		},
		{
			"labels go while a driver is loaded again", "pkg/features/features.go",
			"m.told[l.Address].take(l)", "card{}.take(l)", "TestLabelsStay", "./pkg/features",
		},
		{
			"a card that was gone is taken for the one before", "pkg/features/features.go",
			"	m.told = told\n", "	if m.told == nil {\n		m.told = told\n	}\n", "TestLabelsStay", "./pkg/features",
		},
		{
			"a driver has the version of the one before", "pkg/features/features.go",
			"c.version, c.shell = \"\", \"\"", "", "TestLabelsStay", "./pkg/features",
		},
		{
			"an older result of the self-check replaces a younger one", "pkg/runtimes/result.go",
			"there.After(r.Moment) && ", "false && ", "TestAYoungerResultStays", "./pkg/runtimes",
		},
		{
			"a result that is still to come keeps all others out", "pkg/runtimes/result.go",
			" && !there.After(now)", "", "TestAYoungerResultStays", "./pkg/runtimes",
		},
		{
			"Environment= beats a file of variables", "pkg/runtimes/systemd.go",
			"			assign(env, environmentLines(string(data)))\n", "			assign(env, append(environmentLines(string(data)), u.set...))\n",
			"TestService", "./pkg/runtimes",
		},
		{
			"a Docker in a container is taken for the machine's", "pkg/runtimes/systemd.go",
			"len(m.status(dir, \"NSpid\")) > 1", "false", "TestOthers", "./pkg/runtimes",
		},
		{
			"a wrong type in containers.conf is no matter", "pkg/runtimes/others.go",
			"err = k.checkTypes(d, r)", "err = nil", "TestOthers", "./pkg/runtimes",
		},
		{
			"what is not known about a runtime is a yes", "pkg/runtimes/runtimes.go",
			"r.CDI == On && r.AfterRestart == On && !r", "!r", "TestOnIsNotEnough", "./pkg/runtimes",
		},
		{
			"a result of another boot counts", "pkg/runtimes/result.go",
			"r.Boot != now.Boot", "false", "TestResultsThatDoNotCount", "./pkg/runtimes",
		},
		{
			"that the runtime lost CDI is not told while the LPUs stay as they are", "pkg/node/snapshot.go",
			"slices.Equal(n.withheld, before.withheld)", "true", "TestCDIOffIsNotTheLPUs", "./pkg/plugin",
		},
		{
			"what cannot be handed out is preferred", "pkg/plugin/calls.go",
			"		return err != nil\n", "		return false\n", world, program,
		},
		{
			"a cordoned LPU is offered", "pkg/node/snapshot.go",
			"d.Healthy && d.Cordoned == nil", "d.Healthy", "TestCordons|TestCordonsThatCannotBeRead", "./pkg/node",
		},
		{
			"serve remembers a cordoned LPU as unhealthy", "pkg/node/snapshot.go",
			"	n.remember(s)\n", "	for i := range s.Devices {\n		s.Devices[i].Healthy = s.Devices[i].Offered()\n	}\n	n.remember(s)\n",
			"TestCordons", "./pkg/node",
		},
		{
			"an error that grew hides behind its total", judgeGo,
			"	reasons = slices.DeleteFunc(reasons, func(f finding.Finding) bool { return history.Has(f.ID) })\n", "", "TestTotals", healthPkg,
		},
		{
			"a total makes a card unhealthy for ever", signalsGo,
			"remedy).Severity = finding.Warning", "remedy)", "TestTotals", healthPkg,
		},
		{
			"a link with a quarter of its lanes is not said", signalsGo,
			"r.Link.Width < r.MaxLink.Width", "r.Link.Width < 0", "TestReadings", healthPkg,
		},
		{
			"a lost card is said once for itself and once for its ring", "pkg/finding/people.go",
			"lost[f.Subject] })", "false })", "TestForPeople", "./pkg/finding",
		},
		{
			"a lost function is flashed", "pkg/discovery/scan.go",
			"if golden {", "if !golden {", "TestLostFunction", "./pkg/discovery",
		},
		{
			"a virtual function is an LPU without a word", "pkg/discovery/scan.go",
			"	s.reportSameCard(inv.LPUs)\n", "", "TestSameCard", "./pkg/discovery",
		},
		{
			"driver_override is read while the kernel resets the function", "pkg/discovery/card.go",
			"enabled > 0 || l.Reading.AllOnes", "enabled > 1000", "TestDriverOverride", "./pkg/discovery",
		},
		{
			"a ring table by index and by address counts the indices only", "pkg/ring/table.go",
			"return max(t.cards(), n, len(t.IDs))", "return max(t.cards(), n)", "TestMixedIDs", "./pkg/ring",
		},
		{
			"HyperDex is thought to choose past the end of a table", "pkg/ring/reader.go",
			"case i >= count:", "case i >= 2*count:", "TestReadIsTheVendorsRule", "./pkg/ring",
		},
		{
			"a container's table closes a chain, or joins two arcs", "pkg/ring/container.go",
			"	t.put(-1, left)\n", "", "TestEveryArcInAContainer", "./pkg/ring",
		},
		{
			"the whole ring that a container has is a chain in its table", "pkg/ring/container.go",
			" || r.Looped() && n == len(t.own) {", " {", "TestEveryArcInAContainer", "./pkg/ring",
		},
		{
			"a container's table wants cables that lead out of the container", "pkg/ring/check.go",
			"	if r.Container == 0 {\n", "	if true {\n", "TestEveryArcInAContainer", "./pkg/ring",
		},
		{
			"a table whose links are not in the order of the cables has nothing wrong", "pkg/ring/check.go",
			"	r.checkOrder()\n", "", "TestFileOrder", "./pkg/ring",
		},
		{
			"an inventory forgets on which side LPUs are cabled", "pkg/discovery/ringtable.go",
			"made.Leftward, made.OneCable = r.Leftward(),", "made.Leftward, made.OneCable = false,",
			"TestLastRingIsTheSameCabling", "./pkg/discovery",
		},
		{
			"an inventory takes two LPUs with one cable for a ring", "pkg/discovery/ringtable.go",
			"r.Leftward(), r.Closed && !r.Looped()", "r.Leftward(), false", "TestLastRingIsTheSameCabling", "./pkg/discovery",
		},
		{
			"a file with cordons that breaks lets LPUs go", "pkg/health/cordon.go",
			"	return f.last, findings\n", "	return nil, findings\n", "TestBadFiles", "./pkg/health",
		},
		{
			"a file with cordons is absent while it is put aside", "pkg/health/cordon.go",
			"return os.Link(", "return os.Rename(", "TestABadFileIsNeverAbsent", "./pkg/health",
		},
		{
			"two cordons at once become one", "pkg/health/cordon.go",
			"filelock.Hold(ctx, path)", "filelock.Hold(ctx, path+time.Now().String())", "TestChangesAtOnce", "./pkg/health",
		},
		{
			"a cordon is told at the next scan", "internal/host/follow.go",
			"			last = state\n			changed()\n", "			last = state\n", "TestACordonIsToldAtOnce", program,
		},
		{
			"a cordoned LPU is preferred", "pkg/plugin/calls.go",
			"s.refuse(card, !slices.Contains(must, card))", "s.refuse(card, false)", "TestCordon", "./pkg/plugin",
		},
		{
			"a cordon takes an LPU from the pod that has it", "pkg/plugin/calls.go",
			"s.refuse(card, !slices.Contains(must, card))", "s.refuse(card, true)", "TestCordon", "./pkg/plugin",
		},
		{
			"a cordoned LPU is handed out", "pkg/plugin/calls.go",
			"p.usable(s, c.DevicesIds, true)", "p.usable(s, c.DevicesIds, false)", "TestCordon", "./pkg/plugin",
		},
		{
			"a container with a cordoned LPU is not started again", "pkg/plugin/calls.go",
			"p.usable(p.state.Load(), r.DevicesIds, false)", "p.usable(p.state.Load(), r.DevicesIds, true)", "TestCordon", "./pkg/plugin",
		},
		{
			"allocate names a cordoned LPU", "pkg/allocate/allocate.go",
			"l.Fit() && l.Cordoned == nil &&", "l.Fit() &&", "TestFree", "./pkg/allocate",
		},
		{
			"a spec of no LPU stays", nodeSpec,
			"		_, err = held.Remove()\n", "", world, program,
		},
		{
			"a strange name in our file stays", compareGo,
			"case slices.ContainsFunc(bad, func(g given) bool { return c.exists(hostPath(g.node)) }):\n		d.Wrong = append(d.Wrong, name)\n	case",
			"case", "TestDrift", "./pkg/cdi",
		},
		{
			"a name that a spec made now would not have leads anywhere", compareGo,
			"slices.ContainsFunc(lpus, func(l discovery.LPU) bool { return l.Address == owner.Address })", "len(lpus) >= 0",
			"TestStatesOfSpecs", "./pkg/cdi",
		},
		{
			"directories are read in the default order", "pkg/cdi/served.go",
			"next.resolve(read, in)", "read = dirs\n\t\t\tnext.resolve(read, in)", "TestStatesOfSpecs", "./pkg/cdi",
		},
		{
			"serve hands out an LPU whose name leads to another by another file", "pkg/node/snapshot.go",
			"why != nil {\n			d.Healthy, d.Reasons = false,", "why != nil {\n			d.Reasons =", "TestAFileOfYesterday", "./pkg/node",
		},
		{
			"serve does not see another order of the directories", nodeSpec,
			"spec.File.Path, fmt.Sprint(spec.Orders)}", "spec.File.Path}", "TestAFileOfYesterday", "./pkg/node",
		},
		{
			"a lock that others can open is used", "internal/filelock/filelock.go",
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
			"n.Now().Sub(writes[0]) >= writePeriod", "n.Now().Sub(writes[0]) >= 0",
			"TestTwoProgramsThatDisagree|TestACardThatFlaps", "./pkg/node",
		},
		{
			"a card that flaps keeps others out of the spec", nodeSpec,
			"writes := n.upkeep.writes[name]", `writes := n.upkeep.writes["all"]`, "TestCardsThatFlapTogether", "./pkg/node",
		},
		{
			"the kubelet waits until the spec is written", "pkg/node/snapshot.go",
			"	n.tellWorse(inv, before)\n", "", "TestTheKubeletIsToldFirst", "./pkg/plugin",
		},
		{
			"the kubelet is not told what has gone while serve waited for the lock", "pkg/node/snapshot.go",
			"n.tellWorse(again, before)", "", "TestTheKubeletIsToldFirst", "./pkg/plugin",
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
			"the first reading of a fault that may pass counts", judgeGo,
			"		return StateOf(reasons)\n", "		return Unhealthy\n", "TestTheFirstReadingOfAFaultThatMayPass", "./pkg/discovery",
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
			"case l.Reasons.Has(finding.ReadStalled):\n			kept", "case l.Reasons.Has(finding.ReadStalled):\n			_",
			"TestACardThatHangsIsLeftAlone", "./pkg/discovery",
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
			"another process reads no sensors", "pkg/discovery/apart.go",
			"s.askDriver, s.readSensors}", "s.askDriver}", "TestApartFindsTheSame", "./pkg/discovery",
		},
		{
			"a process that reads aside keeps what this one has open", "internal/aside/fork.go",
			"	closeOthers(w)\n", "", "TestWhatItHasOpen", "./internal/aside",
		},
		{
			"a command does not judge by what serve remembers", "pkg/node/memory.go",
			"health.NewJudge(policy, r.LPUs)", "health.NewJudge(policy, nil)", "TestTheGraceOutlivesTheProgram", "./pkg/node",
		},
		{
			"the sensors of a card are read before it is known to answer", "pkg/discovery/card.go",
			"[]stage{s.readDriver, s.probe, s.readSensors}", "[]stage{s.readDriver, s.readSensors, s.probe}",
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
			"the end of a grace during a look is seen an interval later", "pkg/discovery/watch.go",
			"w.judge.Next(began)", "w.judge.Next(now)", "TestWatchSeesTheEndOfAGrace", "./pkg/discovery",
		},
		{
			"a read that stalls starts a grace again", judgeGo,
			"		maps.Copy(passing, c.Passing) // what could not be read may last\n", "", "TestHysteresis", healthPkg,
		},
		{
			"Allocate gives LPUs that are not connected", "pkg/plugin/calls.go",
			"pieces > 1 || !s.node.Fabric.Cabled()", "pieces < 0", "TestInvariant16Unconnected", "./pkg/plugin",
		},
		{
			"the list of an instance that ended stays", "pkg/plugin/server.go",
			"go s.Plugin.resend()", "_ = s.Plugin.resend", "TestInvariant8TheLastListIsThatOfTheOneThatStays", "./pkg/plugin",
		},
		// Each rule of health.
		{"a repeated event counts", eventsGo, " && !e.Synthetic {", " {", "TestEventsOfLPUs", "./pkg/discovery"},
		{"lost events are forgotten", eventsGo, "	if !e.Overflow && !w.isOurs", "	if !w.isOurs", "TestEventsOfLPUs", "./pkg/discovery"},
		{
			"who used an LPU before does not count", eventsGo,
			"return u.Started < r.At", "return u.Started < r.At && false", "TestRelease", "./pkg/discovery",
		},
		{"a process that cannot be seen does not count", eventsGo, "&& !l.UsersHidden &&", "&&", "TestRelease", "./pkg/discovery"},
		{
			"an overflow of events hides what comes later", "internal/uevent/listener.go",
			" || hasLost && errors.Is(failed, unix.ENOBUFS):", " || errors.Is(failed, unix.ENOBUFS):", "TestOverflow", "./internal/uevent",
		},
		{
			"a forged event counts", "internal/uevent/listener.go",
			"return ok && sender.Pid == 0 && sender", "return ok && sender", "TestForged", "./internal/uevent",
		},
		{"one bad reading is enough", judgeGo, "|| c.Readings < p.BadReadings:", "|| false:", "TestSequences", healthPkg},
		{"one good reading is enough", judgeGo, "c.Readings >= p.GoodReadings &&", "true &&", "TestSequences", healthPkg},
		{"good readings at once are enough", judgeGo, "&& now-c.First >= p.GoodFor", "", "TestSequences", healthPkg},
		{
			"a restart forgets that a recovery failed", judgeGo,
			"maps.Clone(c.Latched)", "map[finding.ID]time.Duration{}", "TestSequences", healthPkg,
		},
		{"nothing is certain at once", judgeGo, "	case certain:\n", "	case certain && false:\n", "TestSequences", healthPkg},
		{"a card that does not answer is fine", signalsGo, "	add(r.AllOnes &&", "	add(false &&", "TestReadings", healthPkg},
		{"a card without power is fine", signalsGo, "	add(r.PowerLost(),", "	add(false,", "TestReadings", healthPkg},
		{"a card that was reset behind its driver is fine", signalsGo, "MemoryOff(r.Command)", "false", "TestReadings", healthPkg},
		{"a card without memory on the bus has no driver", signalsGo, `r.Driver != "" && r.Enabled > 0`, "true", "TestReadings", healthPkg},
		{"a bad state is fine", signalsGo, "	add(r.BadState,", "	add(false,", "TestReadings", healthPkg},
		{"a firewall that has tripped is fine", signalsGo, "	add(r.Firewall > 0,", "	add(false,", "TestReadings", healthPkg},
		{"memory that is not calibrated is fine", signalsGo, "	add(r.Loaded &&", "	add(false && r.Loaded &&", "TestReadings", healthPkg},
		{"an empty card needs calibrated memory", signalsGo, "	add(r.Loaded &&", "	add(", "TestReadings", healthPkg},
		{"a hot card is fine", signalsGo, "t.Celsius >= t.Critical:", "false:", "TestReadings", healthPkg},
		{"all ones last as long as other faults", signalsGo, "		return p.ResetGrace\n", "		return p.Grace\n", "TestHysteresis", healthPkg},
		{
			"what passed once has less time the next time", judgeGo,
			"	c.Passing = passing\n", "	maps.Copy(c.Passing, passing)\n", "TestHysteresis|TestNext", healthPkg,
		},
		{
			"power that came back is never seen", judgeGo,
			"	case c.Revived && r.PowerLost() && r.Link.Width > 0:\n", "	case false:\n", "TestPower", healthPkg,
		},
		{
			"a second loss of power is not seen", judgeGo,
			"	case c.Revived && r.AllOnes: // it died again\n		c.Revived = false\n", "", "TestPower", healthPkg,
		},
		{"a counter that falls has grown", judgeGo, "!known || *value < n.Value", "!known", "TestCounters", healthPkg},
		{
			"what was counted before counts", judgeGo,
			"		n = Count{Value: *value, From: *value, Began: now}\n", "		n = Count{Began: now}\n", "TestCounters", healthPkg,
		},
		{"what was counted is never forgotten", judgeGo, "	case now-max(n.Grew, n.Began) >= quiet:", "	case false:", "TestCounters", healthPkg},
		{"a slot that is narrow degrades a card", judgeGo, "(most == 0 || now < most)", "true", "TestLink", healthPkg},
		{"a link that was never better is degraded", judgeGo, "now < best && (", "(", "TestLink", healthPkg},
		{"a failed recovery is forgotten", judgeGo, "		c.Latched[finding.RecoveryFailed] = now\n", "", "TestRecovery", healthPkg},
		{
			"a failed recovery stays after the driver was bound", judgeGo,
			"		delete(c.Latched, finding.RecoveryFailed)\n", "", "TestRecovery", healthPkg,
		},
		{"another card inherits what was counted", judgeGo, "c.Device != r.Device {", "false {", "TestAnotherDevice", healthPkg},
		{"the grace ends whenever it is looked at next", judgeGo, "ends > now && (at == 0 || ends < at)", "false", "TestNext", healthPkg},
		{
			"a card that is asleep is read", "pkg/discovery/reading.go",
			"	if l.Reading.Asleep() {\n", "	if false {\n", "TestBrokenCard", "./pkg/discovery",
		},
		{
			"a glance goes on looking at a device that was removed", "pkg/discovery/glance.go",
			"e.kept != nil && e.device == l.Reading.Device", "e.kept != nil", "TestAGlanceAtACardMadeAnew", "./pkg/discovery",
		},
		{
			"a card that is late holds up the others", cardsGo,
			"; patience < s.CardDeadline {\n", "; false {\n", "TestACardThatIsLate$", "./pkg/discovery",
		},
		{
			"an event is forgotten once its card is kept", "pkg/discovery/events.go",
			"		w.options.cards.of(a).due = true\n", "", "TestAnEventReadsItsCardAgain", "./pkg/discovery",
		},
		{
			"a glance does not look at what the driver brings", "pkg/discovery/glance.go",
			"range l.Nodes {\n\t\tattributes", "range l.Nodes[:0] {\n\t\tattributes", "TestAGlanceAfterABind", "./pkg/discovery",
		},
		{
			"a card is called broken when descriptors run out", "internal/host/tree.go",
			"t.shortage.CompareAndSwap(nil, &err)", "_ = err", "TestAScanIsRightOrFails", "./pkg/discovery",
		},
		{
			"a watcher holds descriptors of attributes", "internal/host/kept.go",
			"	defer func() { _ = unix.Close(fd) }()\n", "", "TestAWatcherHoldsFewDescriptors", "./pkg/discovery",
		},
		{
			"a shortage of descriptors lifts cordons", "pkg/node/snapshot.go",
			"	err := host.Spare()\n", "	var err error\n", "TestAShortageLiftsNoCordon", "./pkg/node",
		},
		{
			"serve is ready though the machine cannot be read", "pkg/node/snapshot.go",
			"u == nil || u.times < unreadLimit", "true", "TestThreeScansThatFail", "./pkg/node",
		},
		{
			"a machine that cannot be read has serve started again", "pkg/node/snapshot.go",
			"return n.pulse.Alive(", "return n.Latest().Fresh(n.Now(), 2*MaxAge)\n\treturn n.pulse.Alive(", "TestThreeScansThatFail", "./pkg/node",
		},
		{
			"the DRA driver is ready though the machine cannot be read", driverDir + "driver.go",
			"if err := d.Node.Unread(); err != nil {", "if err := error(nil); err != nil {", "TestUnreadMachine", driverPkg,
		},
		{
			"a shortage of descriptors takes all LPUs from their owner", gateGo,
			"before != nil && host.Spare() != nil {", "false {", "TestAShortageChangesNoOwner", ownerPkg,
		},
		{
			"SIGHUP ends a serve that has just begun", "cmd/lpuctl/main.go",
			"cli.HeedHangUp(context.Background())", "context.Background()\n\t_ = cli.HeedHangUp", "TestHangUpAtTheStart", program,
		},
		{
			"who holds the former node of an LPU is forgotten", "pkg/discovery/events.go",
			"for _, path := range former {", "for _, path := range former[:0] {", "TestRelease$", "./pkg/discovery",
		},
		{
			"a container that has ended keeps its LPUs", "pkg/lease/mark.go",
			"for id := range running(", "clear(ended)\n\tfor id := range running(", "TestMarkOfAnEndedContainer", "./pkg/lease",
		},
		{
			"the node of a card that is late is taken for shared", cardsGo,
			"slices.ContainsFunc(kept, isLate) && shareNodes(found)", "false", "TestTheNodeOfACardThatIsLate", "./pkg/discovery",
		},
		{
			"the exporter writes the spec", "pkg/node/snapshot.go", "!spec.ReadOnly && n.due(check)", "n.due(check)", "TestReadOnly", "./pkg/node",
		},
		{
			"serve is not seen when its lock file was removed", "internal/filelock/presence.go",
			"p.lock != nil && isAt(p.lock, name)", "p.lock != nil", "TestPresence", "./internal/filelock",
		},
		{
			"a device of a former cabling is withdrawn while a claim may have it", "pkg/dra/state.go",
			"if prepared[d.Name] != nil || at.Sub(d.Former) < formerFor {", "if false {", "TestRecabled", draPkg,
		},
		{
			"arcs are withdrawn when the ring table is gone", "pkg/dra/layout.go",
			"	if inv.RingTable != nil {\n", "	if true {\n", "TestGoneCard", draPkg,
		},
		{
			"a taint that comes and goes has all waiting pods tried again", "pkg/dra/taint.go",
			"if at.Sub(c.Ended) < linger {", "if false {", "TestTaintsOverTime", draPkg,
		},
		{
			"an LPU that is free is not given for a minute more, and none is on a node that is new", "pkg/dra/taint.go",
			"if c.Key == TaintHeld || c.Key == TaintLeases || slices", "if slices", "TestHeld", draPkg,
		},
		{
			"slices are written as often as the node changes", "pkg/dra/publisher.go",
			"if len(p.writes) < writesMax {", "if true {", "TestFourWritesInAMinute", draPkg,
		},
		{
			"another cabling is published that the next process does not know", "pkg/dra/publisher.go",
			"		if vital {\n", "		if vital && p.Path == \"\" {\n", "TestMemoryBeforeSlices", draPkg,
		},
		{
			"a memory that is lost frees what prepared claims have", "pkg/dra/state.go",
			"if !known && !current[name] && len(members) > 0 {", "if known && !current[name] && len(members) > 0 {", "TestLostMemory", draPkg,
		},
		{
			"a claim that was only started keeps its LPUs", claimGo,
			"r.State == completed && sameBoot", "sameBoot", "TestKilledAtEachStep", claimPkg,
		},
		{
			"a claim of an earlier boot keeps its LPUs", claimGo,
			"a == b || a == \"\" || b == \"\"", "true", "TestRestore", claimPkg,
		},
		{
			"a claim is given back record first", claimGo,
			"{cdi.ClaimFile(s.SpecDir, uid), record + quarantined, record}", "{record, record + quarantined, cdi.ClaimFile(s.SpecDir, uid)}",
			"TestKilledAtEachStep", claimPkg,
		},
		{
			"a claim is completed before it has its file", claimGo,
			"	if err := s.write(r); err != nil {\n		return err\n	}\n	if err := s.render",
			"	r.State = completed\n	if err := s.write(r); err != nil {\n		return err\n	}\n	if err := s.render",
			"TestKilledAtEachStep", claimPkg,
		},
		{
			"a failed prepare keeps its LPUs recorded", claimGo,
			"err = errors.Join(err, s.remove(r.UID))", "err = errors.Join(err)", "TestDirectoriesThatCannotBeWritten", claimPkg,
		},
		{
			"two instances prepare at the same time", claimGo,
			"return filelock.Hold(ctx, filepath.Join(s.Dir, \"claims.json\"))",
			"return filelock.Hold(ctx, filepath.Join(s.Dir, fmt.Sprint(time.Now())))", "TestManyAtOnce", claimPkg,
		},
		{
			"a prepare that the kubelet has given up goes on", claimGo,
			"	if err := ctx.Err(); err != nil {", "	if err := error(nil); err != nil {", "TestRefusals", claimPkg,
		},
		{
			"an LPU is given to two claims when the record of one is lost", restoreGo,
			"			f.adopted[uid] = r\n", "			_ = r\n", "TestBadRecords", claimPkg,
		},
		{
			"temporary files of a killed instance stay", restoreGo,
			"	s.sweep(s.SpecDir)\n", "", "TestKilledAtEachStep", claimPkg,
		},
		{
			"fields of a later version are lost", claimGo,
			"		r.rest = have.rest\n", "		r.rest = nil\n", "TestBadRecords", claimPkg,
		},
		{
			"an LPU is given twice because what the kubelet says is behind the plugin", gateGo,
			"return max(0, g.Settle-age)", "return max(0, -age)", "TestSettle", ownerPkg,
		},
		{
			"a claim gets an LPU that a plugin which knows no owner gave away meanwhile", driverDir + "driver.go",
			"	d.Claims.Confirm = d.Gate.Ask\n", "", "TestOwner", driverPkg,
		},
		{
			"a claim is prepared though its LPUs turn out to be another's", claimGo,
			"if err := s.Confirm(ctx, r.Members()); err != nil {", "if err := error(nil); err != nil {", "TestConfirm", claimPkg,
		},
		{
			"an old word of the kubelet makes a claim prepared", claimGo,
			"s.holds(have) && !f.unconfirmed[uid]", "s.holds(have)", "TestStaleWord", claimPkg,
		},
		{
			"a claim that is prepared is refused, and loses its files", claimGo,
			"f.of(r.UID).sameLPUs(r)", "f.of(r.UID).same(r)", "TestAskedAgain", claimPkg,
		},
		{
			"a claim that is prepared is asked again whether its LPUs may be given", claimGo,
			"	if !s.has(f, r) {\n", "	if true {\n", "TestAskedAgain", claimPkg,
		},
		{
			"an LPU is given twice when all files of a claim are lost", "pkg/dra/claim/memory.go",
			"		if f.records[uid] != nil || f.adopted[uid] != nil {\n", "		if true {\n", "TestAnyOneIsEnough", claimPkg,
		},
		{
			"a claim that another instance gave back is there again", "pkg/dra/claim/memory.go",
			"f.unconfirmed[uid] = m.at.Sub(missed[uid]) < confirmAfter", "f.unconfirmed[uid] = false", "TestLostFiles", claimPkg,
		},
		{
			"what a driver knows of a claim is lost with its files", "pkg/dra/claim/memory.go",
			"			f.adopted[uid] = l.record.clone()\n", "", "TestLostFiles", claimPkg,
		},
		{
			"a record that is lost stays so until the driver starts again", restoreGo,
			"return len(f.adopted) > 0 ||", "return", "TestLostFiles", claimPkg,
		},
		{
			"a claim that has lost all files is forgotten", driverDir + "driver.go",
			"		if state != seen { // files", "		if false { // files", "TestLostFilesAreWritten", driverPkg,
		},
		{
			"serve gives away what a claim has that lost its files", "cmd/lpuctl/owner.go",
			"		if err == nil {\n			claims.Hear(said.Claims())", "		if err == nil {\n			_ = said.Claims()", "TestServeFollowsTheOwner", program,
		},
		{
			"what two pods have is said late", gateGo,
			"const askInterval = 4 * time.Second", "const askInterval = 10 * time.Second", "TestGivenTwice", ownerPkg,
		},
		{
			"an LPU that one pod has after another is said to be given twice", gateGo,
			"return again[a].ID == \"\"", "return again == nil && twice == nil", "TestGivenTwice", ownerPkg,
		},
		{
			"what is to be done about a broken record is not said", "pkg/owner/view.go",
			"cmp.Or(finding.RemedyOf(err), f.Remedy)", "cmp.Or(f.Remedy)", "TestRemedyOfWhatIsNotKnown", ownerPkg,
		},
		{
			"what the kubelet said before the owner changed counts", gateGo,
			"g.asked.under == said.under && ", "", "TestKubeletAway", ownerPkg,
		},
		{
			"a kubelet that hangs stalls who hands out LPUs", gateGo,
			"v, state, now := g.sight()", "g.showing.Lock()\n\tdefer g.showing.Unlock()\n\tv, state, now := g.sight()",
			"TestAKubeletThatHangs", ownerPkg,
		},
		{
			"an LPU is given twice while the owner changes", gateGo,
			"lock, err := g.hold(ctx)", "lock, err := (*os.File)(nil), error(nil)", "TestNobodyIsGivenOneTwice", ownerPkg,
		},
		{
			"pods are given LPUs that were leased before the program started", gateGo,
			"		v.leased = g.leased\n", "", "TestLeasedBeforeAProgramStarts", program,
		},
		{
			"what serve has seen of LPUs is not written again after it broke", "pkg/node/memory.go",
			" || !before.isAt(path)", "", "TestTheFileOfHealthIsWrittenAgain", "./pkg/node",
		},
		{
			"no command says that what serve has seen of LPUs cannot be read", "pkg/node/memory.go",
			"	if err != nil || host.IsShortage(statErr) {", "	if host.IsShortage(cmp.Or(err, statErr)) {",
			"TestTheFileOfHealthIsWrittenAgain", "./pkg/node",
		},
		{
			"a record of leases that cannot be read says to a program that starts that no user has one", gateGo,
			"			v.unread = err\n", "			_ = err\n", "TestLeased", ownerPkg,
		},
		{
			"what a pod was given a moment ago is leased before the kubelet names that pod", gateGo,
			"		g.note()\n", "", "TestStanding", ownerPkg,
		},
		{
			"a leased LPU stays published", driverDir + "driver.go",
			"return d.Gate.Look().Leased(a)", "return false", "TestLeasedLeavesTheSlices", driverPkg,
		},
		{
			"a kubelet that hangs delays each lease that is refused all the same", "cmd/lpuctl/lease.go",
			"if closed != \"\" { // what", "if _ = closed; false { // what", "TestAKubeletIsNotAskedInVain", program,
		},
		{
			"what to do about a broken record of a claim is not said to who asks for a lease", "pkg/lease/why.go",
			"closed(b.view.Closed, b.view.ClosedRemedy)", "closed(b.view.Closed, \"\")", "TestPodsAreNotKnown", program,
		},
		{
			"a kubelet with another directory is taken for none", "cmd/internal/cli/app.go",
			"append(named, plugin.PodResources()...)", "append(named, plugin.DefaultPodResources)",
			"TestWhereAKubeletIs", program,
		},
		{
			"the lease of a container that has ended keeps its LPUs from pods", "pkg/lease/book.go",
			"e.Grant == nil || e.Gone })", "e.Grant == nil })", "TestEndedLeasesAreNotRecorded", program,
		},
		{
			"leases that ended with their arbiter keep their LPUs from pods", "pkg/lease/arbiter.go",
			"			a.endLeases()\n", "", "TestEndedLeasesAreNotRecorded", program,
		},
		{
			"a lease is granted while a program starts", "pkg/lease/arbiter.go",
			"		out = a.withdraw(out)\n", "		out = slices.Clone(out)\n", "TestAProgramStartsMeanwhile", program,
		},
		{
			"what pods have is leased when no program runs", "pkg/lease/choice.go",
			" && b.view.Pods[l.Address] == \"\"", "", "TestPodsOutliveTheProgram", program,
		},
		{
			"leases are granted beside the DRA driver", "pkg/owner/standing.go",
			"[]Owner{s.Record.Owner, Plugin, DRA}", "[]Owner{Plugin}", "TestKubernetesNeedsAPool", program,
		},
		{
			"leases are granted beside a device plugin of a release before", "pkg/owner/standing.go",
			"listens, unseen := f.listens()", "listens, unseen := false, error(nil)", "TestStanding", ownerPkg,
		},
		{
			"what cannot be seen is taken for a no", "pkg/owner/standing.go",
			"if err := s.Unknown[o]; err != nil {", "if err := s.Unknown[o]; false {", "TestStanding", ownerPkg,
		},
		{
			"a lease is granted while a program hands out its first LPU", gateGo,
			"	_ = g.show() // before: who", "	// before: who", "TestStanding", ownerPkg,
		},
		{
			"a pod that is being removed takes the LPUs for good", gateGo,
			"if g.Insist && g.show() == nil {", "if false {", "TestInsist", ownerPkg,
		},
		{
			"Allocate hands out an LPU that a claim has got since the last look", "pkg/plugin/calls.go",
			"	if p.Node.Gate == nil {", "	if true {", "TestChangeOver", "./pkg/plugin",
		},
		{
			"a snapshot of before the owner changed stays", "pkg/node/snapshot.go",
			" && n.view == before.view", "", "TestChangeOver", "./pkg/plugin",
		},
		{
			"a toleration of everything gets an LPU that is kept for leases", "pkg/dra/slices.go",
			"s.set(d.members) >= 0 && !s.leased(d.members)", "s.set(d.members) >= 0", "TestLeases", draPkg,
		},
		{
			"an LPU that is kept for leases is withdrawn while a claim has it", "pkg/dra/taint.go",
			"c.Key == TaintLeases && !s.claimed[c.LPU] && ", "c.Key == TaintLeases && ", "TestLeases", draPkg,
		},
		{
			"a toleration of everything gets a cordoned LPU", driverDir + "tolerate.go",
			"t.Key == dra.TaintCordoned && value", "value", "TestCordonedIsPreparedByNameOnly", driverPkg,
		},
		{
			"a toleration of the cordon gets an LPU that is kept for leases", driverDir + "tolerate.go",
			"!l.Cordoned.SetApart && names(", "names(", "TestCordonedIsPreparedByNameOnly", driverPkg,
		},
		{
			"the DRA driver gives out LPUs while CDI is off", driverDir + "driver.go",
			"d.Node.AskRuntime(d.OnCDIOff)", "d.Node.ForgetRuntime()", "TestCDIOff", driverPkg,
		},
		{
			"arcs are published though nobody counts their LPUs", driverDir + "probe.go",
			"return singles, nil", "return arcs, nil", "TestWithoutCounters", driverPkg,
		},
		{
			"slices stay whose counters were dropped", driverDir + "publish.go",
			"		d.dropped.Store(int32(modeOf(fields.DesiredSlice)))\n", "", "TestDroppedFields", driverPkg,
		},
		{
			"slices belong to a node that was deleted", driverDir + "publish.go",
			"if err := p.removeOrphans(ctx, n.UID); err != nil {", "if err := error(nil); err != nil {", "TestNodeMadeAnew", driverPkg,
		},
		{
			"a node that was made anew has no slices for long", driverDir + "publish.go",
			"if p.renewed.Swap(false) {", "if false {", "TestNodeMadeAnew", driverPkg,
		},
		{
			"a claim gets an LPU that a pod of the device plugin has", driverDir + "prepare.go",
			"lpus := d.members(wanted); !d.Claims.Prepared(wanted.UID)", "lpus := d.members(wanted); false", "TestOwner", driverPkg,
		},
		{
			"a container does not start again after the spec directory was wiped", driverDir + "metadata.go",
			"	for _, file := range files {\n", "	for _, file := range files[:0] {\n", "TestFilesComeBack", driverPkg,
		},
		{
			"a claim is taken back while its pod runs", driverDir + "collect.go",
			"used, err := d.usedByPod(ctx, c); used || err != nil", "used, err := d.usedByPod(ctx, c); !used && err != nil",
			"TestCollect", driverPkg,
		},
		{
			"another claim of the same name keeps LPUs for ever", driverDir + "collect.go",
			"return string(have.UID) != c.UID", "return have == nil", "TestCollect", driverPkg,
		},
		{
			"a driver whose socket was removed is never asked again", driverDir + "serve.go",
			"err != nil || !os.SameFile(now, before[i])", "err == nil && !os.SameFile(now, before[i])", "TestSocketsComeBack", driverPkg,
		},
		{
			"serve looks at its own file only, whatever lies beside it", "pkg/cdi/validate_effective.go",
			"if f.IsAlone(orders) {", "if true {", world, program,
		},
		{
			"serve gives away what a user has leased", "pkg/owner/view.go",
			"	if !leased {\n", "	if !leased || true {\n", world, program,
		},
		{
			"who leases LPUs does not know which of them claims have", "cmd/lpuctl/lease.go",
			"maps.Copy(all, claimed)", "maps.Copy(said.InPods(), claimed)", world, program,
		},
		{
			"a file that does not say who hands out LPUs says the plugin", "pkg/owner/file.go",
			"return Record{}, fmt.Errorf(\"%s: %w\", f.Path(), host.Reason(err))", "return Record{Owner: Plugin}, nil", "TestChangeovers", claimPkg,
		},
		{
			"the driver hands out LPUs while the kubelet does not say what pods have", gateGo,
			"return said.held, err\n}", "return said.held, nil\n}", "TestChangeovers", claimPkg,
		},
	}
}
