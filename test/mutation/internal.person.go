package main

func internalPerson() []mutation {
	return []mutation{
		{
			name:    "what runs by a subordinate uid is not seen to be its owner's when a lease has ended",
			fix:     "\tif _, listed := known.users.names[uid]; uid != 0 {\n\t\tc.findOwners",
			without: "\tif _, listed := known.users.names[uid]; false {\n\t\tc.findOwners",
			test:    "TestUsers",
		},
		{
			name:    "a subordinate uid is of no user",
			fix:     "if !c.foreign && r.has(c.uid) {",
			without: "if false {",
			test:    "TestWho",
		},
		{
			name:    "a uid in the ranges of two users is the first one's",
			fix:     "case len(names) > 1:",
			without: "case len(names) > 2:",
			test:    "TestWho",
		},
		{
			name:    "a container of root has root's rights",
			fix:     "case len(c.persons) == 1 && c.persons[0].UID == 0 && c.uid != 0:",
			without: "case len(c.persons) == 1 && c.persons[0].UID < 0:",
			test:    "TestWho",
		},
		{
			name:    "a user of LDAP in another's range counts as the other",
			fix:     "\tc.self(ctx, listed, name)\n",
			without: "",
			test:    "TestWho",
		},
		{
			name:    "a change of /etc/subuid is not seen",
			fix:     "if !bytes.Equal(data, p.read[file]) {",
			without: "if !bytes.Equal(data, p.read[file]) && p.read[file] == nil {",
			test:    "TestFilesThatChange",
		},
		{
			name:    "a user of /etc/passwd waits for getsubids",
			fix:     "if c.foreign && !listed {",
			without: "if c.foreign {",
			test:    "TestAnotherSource",
		},
		{
			name:    "the resolver is asked each time",
			fix:     "(!before.isDone() || before.until.After(r.now()))",
			without: "!before.isDone()",
			test:    "TestAnswersAreKept",
		},
		{
			name:    "a user is forgotten while the resolver does not answer",
			fix:     "if before != nil && before.err == nil {",
			without: "if false {",
			test:    "TestAnswersAreKept",
		},
		{
			name:    "what a killed resolver has not said counts as no",
			fix:     "failed && e.Exited()",
			without: "failed && e != nil",
			test:    "TestAnswersAreKept",
		},
		{
			name:    "what the resolver has started stays behind",
			fix:     "unix.Kill(-cmd.Process.Pid, unix.SIGKILL)",
			without: "unix.Kill(cmd.Process.Pid, unix.SIGKILL)",
			test:    "TestAHangingResolverIsEnded",
		},
		{
			name:    "any number of connections wait for what is asked about one user",
			fix:     "if l.callers >= maxCallers {",
			without: "if l.callers > maxCallers {",
			test:    "TestAFloodOfUids",
		},
		{
			name:    "many programs run for one user at once",
			fix:     "turn: make(chan struct{}, 1)",
			without: "turn: make(chan struct{}, maxCallers)",
			test:    "TestAFloodOfUids",
		},
		{
			name:    "who gets no turn keeps that of the user",
			fix:     "\t\t\t\t<-l.turn\n",
			without: "",
			test:    "TestNoTurn",
		},
		{
			name:    "what was answered about the uids of a user is kept without a bound",
			fix:     "if len(l.answers) >= maxAnswers {",
			without: "if false {",
			test:    "TestWhatIsKeptIsBounded",
		},
		{
			name:    "what a resolver prints is kept without a bound",
			fix:     "cmd.Stdout = &head\n",
			without: "cmd.Stdout = &head.start\n",
			test:    "TestALongAnswer",
		},
	}
}
