package main

func internalNode() []mutation {
	return []mutation{
		{
			name:    "a conflict is not noticed",
			fix:     "bad = append(bad, c.Devices...)",
			without: "_ = c",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "serve does not renew variables when it starts",
			fix:     "upkeep: upkeep{renew: true, ",
			without: "upkeep: upkeep{",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "that the runtime lost CDI is not told while the LPUs stay as they are",
			fix:     "slices.Equal(n.withheld, before.withheld)",
			without: "true",
			test:    "TestCDIOffIsNotTheLPUs", pkg: "pkg/plugin",
		},
		{
			name:    "a cordoned LPU is offered",
			fix:     "d.Healthy && d.Cordoned == nil",
			without: "d.Healthy",
			test:    "TestCordons|TestCordonsThatCannotBeRead",
		},
		{
			name:    "serve remembers a cordoned LPU as unhealthy",
			fix:     "\tn.remember(s)\n",
			without: "\tfor i := range s.Devices {\n\t\ts.Devices[i].Healthy = s.Devices[i].Offered()\n\t}\n\tn.remember(s)\n",
			test:    "TestCordons",
		},
		{
			name:    "a spec of no LPU stays",
			fix:     "\t\t_, err = held.Remove()\n",
			without: "",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "serve hands out an LPU whose name leads to another by another file",
			fix:     "why != nil {\n\t\t\td.Healthy, d.Reasons = false,",
			without: "why != nil {\n\t\t\td.Reasons =",
			test:    "TestAFileOfYesterday",
		},
		{
			name:    "serve does not see another order of the directories",
			fix:     "spec.File.Path, fmt.Sprint(spec.Orders), ",
			without: "spec.File.Path, ",
			test:    "TestAFileOfYesterday",
		},
		{
			name:    "a wrong name waits",
			fix:     "\tcase len(d.Wrong) > 0:\n\t\treturn true\n",
			without: "",
			test:    "TestTwoProgramsThatDisagree",
		},
		{
			name:    "two programs write without end",
			fix:     "n.Now().Sub(writes[0]) >= writePeriod",
			without: "n.Now().Sub(writes[0]) >= 0",
			test:    "TestTwoProgramsThatDisagree|TestACardThatFlaps",
		},
		{
			name:    "a card that flaps keeps others out of the spec",
			fix:     "writes := n.upkeep.writes[name]",
			without: `writes := n.upkeep.writes["all"]`,
			test:    "TestCardsThatFlapTogether",
		},
		{
			name:    "the kubelet waits until the spec is written",
			fix:     "\tn.tellWorse(inv, before)\n",
			without: "",
			test:    "TestTheKubeletIsToldFirst", pkg: "pkg/plugin",
		},
		{
			name:    "the kubelet is not told what has gone while serve waited for the lock",
			fix:     "n.tellWorse(again, before)",
			without: "",
			test:    "TestTheKubeletIsToldFirst", pkg: "pkg/plugin",
		},
		{
			name:    "new numbers under an old name are not noticed",
			fix:     "check.drift.Wrong = append(check.drift.Wrong, renumbered...)",
			without: "",
			test:    "TestNewNumbersNeedANewFile",
		},
		{
			name:    "the health of another boot is taken for this one's",
			fix:     "r.Boot != host.Now().Boot",
			without: "false",
			test:    "TestHealthAtTheStart",
		},
		{
			name:    "the first list does not wait",
			fix:     "s.Settled = before.Settled || !n.doubtful(inv) ||",
			without: "s.Settled = true ||",
			test:    "TestHealthAtTheStart",
		},
		{
			name:    "a command does not judge by what serve remembers",
			fix:     "health.NewJudge(policy, r.LPUs)",
			without: "health.NewJudge(policy, nil)",
			test:    "TestTheGraceOutlivesTheProgram",
		},
		{
			name:    "a shortage of descriptors lifts cordons",
			fix:     "\terr := host.Spare()\n",
			without: "\tvar err error\n",
			test:    "TestAShortageLiftsNoCordon",
		},
		{
			name:    "serve is ready though the machine cannot be read",
			fix:     "u == nil || u.times < unreadLimit",
			without: "true",
			test:    "TestThreeScansThatFail",
		},
		{
			name:    "a machine that cannot be read has serve started again",
			fix:     "return n.pulse.Alive(",
			without: "return n.Latest().Fresh(n.Now(), 2*MaxAge)\n\treturn n.pulse.Alive(",
			test:    "TestThreeScansThatFail",
		},
		{
			name:    "the exporter writes the spec",
			fix:     "!spec.ReadOnly && n.due(check)",
			without: "n.due(check)",
			test:    "TestReadOnly",
		},
		{
			name:    "since when a cable is down is wrong when somebody has set the clock",
			fix:     "n.Now().Add(-n.SinceBoot())",
			without: "time.Unix(0, 0)",
			test:    "TestCables",
		},
		{
			name:    "a nonsense table makes series without end",
			fix:     "cables > cablesMax",
			without: "false",
			test:    "TestNoSeriesWithoutEnd",
		},
		{
			name:    "what serve has seen of LPUs is not written again after it broke",
			fix:     " || !before.isAt(path)",
			without: "",
			test:    "TestTheFileOfHealthIsWrittenAgain",
		},
		{
			name:    "no command says that what serve has seen of LPUs cannot be read",
			fix:     "\tif err != nil || host.IsShortage(statErr) {",
			without: "\tif host.IsShortage(cmp.Or(err, statErr)) {",
			test:    "TestTheFileOfHealthIsWrittenAgain",
		},
		{
			name:    "a snapshot of before the owner changed stays",
			fix:     " && n.view == before.view",
			without: "",
			test:    "TestChangeOver", pkg: "pkg/plugin",
		},
		{
			name:    "names lead to ring tables of former cables",
			fix:     "d.Dangling, d.Missing, d.Tables)",
			without: "d.Dangling, d.Missing)",
			test:    "TestRingTablesFollowTheCabling",
		},
		{
			name:    "an answer that has begun is cut off when serve ends or reads its config file again",
			fix:     "_ = server.Shutdown(patience)",
			without: "_, _ = patience, server.Close()",
			test:    "TestAnAnswerThatHasBegunIsWhole",
		},
	}
}
