package main

func internalWatch() []mutation {
	return []mutation{
		{
			name:    "sensors that another program has read are not read when it ends",
			fix:     "if w.options.Unsensed && !leave {",
			without: "if false {",
			test:    "TestSensorsOfServe", pkg: "cmd/lpuctl-top",
		},
		{
			name:    "the sensors of a card that has hung are read at once",
			fix:     "kept.sensed, kept.sensedAt = &discovery.Sensed{Device: l.Reading.Device}, c.now",
			without: "_ = 0",
			test:    "TestACardThatHangsIsLeftAlone",
		},
		{
			name:    "sensors are read at every scan",
			fix:     "if c.now-kept.sensedAt < sensorPeriod {",
			without: "if c.now < kept.sensedAt {",
			test:    "TestSensorsAreReadSeldom",
		},
		{
			name:    "a copy of one reading of the sensors counts as another one",
			fix:     `case sensors == nil, sensors.Findings("", policy).HasErrors():`,
			without: "case sensors == nil:",
			test:    "TestSensorsAreReadSeldom",
		},
		{
			name:    "cards at which a glance could not look are taken for unchanged",
			fix:     "\t\tw.cards.want() // a scan",
			without: "\t\t// a scan",
			test:    "TestAGlanceThatFails",
		},
		{
			name:    "an overflow of inotify is not noticed",
			fix:     "hasChanged = err != nil",
			without: "_ = err",
			test:    "TestWaitAfterAnOverflow",
		},
		{
			name:    "the end of a grace during a look is seen an interval later",
			fix:     "w.judge.Next(began)",
			without: "w.judge.Next(now)",
			test:    "TestWatchSeesTheEndOfAGrace",
		},
		{
			name:    "a repeated event counts",
			fix:     " && !e.Synthetic {",
			without: " {",
			test:    "TestEventsOfLPUs",
		},
		{
			name:    "lost events are forgotten",
			fix:     "\tif !e.Overflow && (!ok || !w.isOurs",
			without: "\tif (!ok || !w.isOurs",
			test:    "TestEventsOfLPUs",
		},
		{
			name:    "who used an LPU before does not count",
			fix:     "return u.Started < r.At",
			without: "return u.Started < r.At && false",
			test:    "TestRelease",
		},
		{
			name:    "a process that cannot be seen does not count",
			fix:     "&& !l.UsersHidden &&",
			without: "&&",
			test:    "TestRelease",
		},
		{
			name:    "a glance goes on looking at a device that was removed",
			fix:     "e.kept != nil && e.device == l.Reading.Device",
			without: "e.kept != nil",
			test:    "TestAGlanceAtACardMadeAnew",
		},
		{
			name:    "a card that is late holds up the others",
			fix:     "; patience < c.deadline {\n",
			without: "; false {\n",
			test:    "TestACardThatIsLate$",
		},
		{
			name:    "an event is forgotten once its card is kept",
			fix:     "\t\tw.cards.of(a).due = true\n",
			without: "",
			test:    "TestAnEventReadsItsCardAgain",
		},
		{
			name:    "a glance does not look at what the driver brings",
			fix:     "discovery.DriverStates(l.Nodes)...",
			without: "discovery.DriverStates(nil)...",
			test:    "TestAGlanceAfterABind",
		},
		{
			name:    "who holds the former node of an LPU is forgotten",
			fix:     "for _, path := range former {",
			without: "for _, path := range former[:0] {",
			test:    "TestRelease$",
		},
		{
			name:    "the node of a card that is late is taken for shared",
			fix:     "slices.ContainsFunc(kept, isLate) && discovery.ShareNodes(lpus)",
			without: "false",
			test:    "TestTheNodeOfACardThatIsLate",
		},
	}
}
