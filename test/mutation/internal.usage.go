package main

func internalUsage() []mutation {
	return []mutation{
		{
			name:    "usage that could not be written is lost",
			fix:     "\t\tk.run = \"\"\n\t\tm.changed[k] = true\n",
			without: "\t\tk.run = \"\"\n",
			test:    "TestAFullDisk",
		},
		{
			name:    "usage is lost when the clock is set back",
			fix:     "if k.hour <= m.left {",
			without: "if k.hour <= m.left && false {",
			test:    "TestTheClockIsSetBack",
		},
		{
			name:    "the next arbiter counts leases once more",
			fix:     "if until < h.Since {",
			without: "if true {",
			test:    "TestAnArbiterIsKilled",
		},
		{
			name:    "who leases all the time fills the journal of usage",
			fix:     "r.Run, r.Until = \"\", 0",
			without: "r.Until = 0",
			test:    "TestManyArbiters",
		},
		{
			name:    "usage is kept longer than the config file says",
			fix:     "case r.Hour.Before(oldest):\n\t\tcase at != nil",
			without: "case r.Hour.Before(oldest) && false:\n\t\tcase at != nil",
			test:    "TestOldRowsAreRemoved",
		},
		{
			name:    "what an arbiter was writing of usage when it was killed is kept",
			fix:     "wholefile.ClearLeftovers(j.file(n))",
			without: "_, _ = n, wholefile.ClearLeftovers",
			test:    "TestOldRowsAreRemoved",
		},
		{
			name:    "a user reads what others have used",
			fix:     "(k.By == 0 || k.By == r.UID) && ",
			without: "",
			test:    "TestWhatIsMeasured",
		},
		{
			name:    "what steers a terminal gets into the journal of usage",
			fix:     "!unicode.IsPrint(r) || r == utf8.RuneError",
			without: "!unicode.IsPrint(r) && false || r == utf8.RuneError",
			test:    "TestNames",
		},
		{
			name:    "an open node counts while the machine sleeps",
			fix:     "l.open && this.at-last.at <= unseen",
			without: "l.open",
			test:    "TestNothingIsKnownOfASleep",
		},
	}
}

func internalLeaseLedger() []mutation {
	return []mutation{
		{
			name:    "a journal of usage that cannot be written is complained of at each lease",
			fix:     "if text := err.Error(); text != l.failed {",
			without: "if text := err.Error(); text != \"\" {",
			test:    "TestUsageThatCannotBeWritten",
		},
		{
			name:    "a user asks for what another has used",
			fix:     "c.peer.UID != 0 && !own",
			without: "c.peer.UID != 0 && !own && false",
			test:    "TestUsage",
		},
		{
			name:    "usage that is turned off stays on the disk",
			fix:     "err := j.Forget()",
			without: "err := error(nil)",
			test:    "TestUsage",
		},
		{
			name:    "what was used until the arbiter ends is not recorded",
			fix:     "\ta.closeLedger()\n",
			without: "",
			test:    "TestUsageThatCannotBeWritten",
		},
	}
}
