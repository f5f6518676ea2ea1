package main

func internalLease() []mutation {
	return []mutation{
		{
			name:    "what may still be in use after a lease is given to the next user",
			fix:     "b.keptBack(uid, l.Address) != nil",
			without: "false",
			test:    "TestAnLPUThatIsUnclear",
		},
		{
			name:    "a container that has ended keeps its LPUs",
			fix:     "for id := range running(",
			without: "clear(ended)\n\tfor id := range running(",
			test:    "TestMarkOfAnEndedContainer",
		},
		{
			name:    "what to do about a broken record of a claim is not said to who asks for a lease",
			fix:     "closed(b.Closed, b.ClosedRemedy)",
			without: `closed(b.Closed, "")`,
			test:    "TestPodsAreNotKnown", pkg: "cmd/lpuctl",
		},
		{
			name:    "the lease of a container that has ended keeps its LPUs from pods",
			fix:     "return len(b.queue) > 0 || slices.ContainsFunc(b.leases, func(e *entry) bool { return e.Gone })",
			without: "return len(b.queue) > 0",
			test:    "TestEndedLeasesAreNotRecorded", pkg: "cmd/lpuctl",
		},
		{
			name:    "leases that ended with their arbiter keep their LPUs from pods",
			fix:     "\t\ta.endLeases(ctx)\n",
			without: "",
			test:    "TestEndedLeasesAreNotRecorded", pkg: "cmd/lpuctl",
		},
		{
			name:    "a lease is granted while a program starts",
			fix:     "\t\tout = a.withdraw(out)\n",
			without: "\t\tout = slices.Clone(out)\n",
			test:    "TestAProgramStartsMeanwhile", pkg: "cmd/lpuctl",
		},
		{
			name:    "what pods have is leased when no program runs",
			fix:     ` && b.Pods[l.Address] == ""`,
			without: "",
			test:    "TestPodsOutliveTheProgram", pkg: "cmd/lpuctl",
		},
		{
			name:    "a record of leases that was removed is taken for none",
			fix:     "r == nil && runs {",
			without: "r == nil && runs && false {",
			test:    "TestChangeovers", pkg: "internal/dra/claim",
		},
		{
			name:    "the arbiter closes descriptors that clients have passed",
			fix:     "c.relayed = (err != nil || peer.UID != 0) && (a.Relay || mayHaveRights(conn))",
			without: "c.relayed = false && mayHaveRights(conn)",
			test:    "TestDescriptorsThatAreClosedSlowly",
		},
		{
			name:    "clients pass descriptors to the arbiter though the kernel can refuse them",
			fix:     "\t\trefuseRights(a.Listener)\n",
			without: "",
			test:    "TestDescriptorsAreRefused",
		},
		{
			name:    "a relay that sleeps keeps its user from the arbiter for ever",
			fix:     "\tr.Kill()\n",
			without: "\treturn\n",
			test:    "TestARelayIsReplaced",
		},
		{
			name:    "a user who asks on and on is served before others",
			fix:     "\t\tt.order = append(t.order, uid)\n\t} else {",
			without: "\t\tt.order = append([]int{uid}, t.order...)\n\t} else {",
			test:    "TestTurns",
		},
		{
			name:    "what a wish could use is found again for each change",
			fix:     "e.claims.era != era {",
			without: "true {\n\t\t_ = era",
			test:    "TestAChangeCostsTheSame",
		},
		{
			name:    "all who wait hear their places at each change",
			fix:     "most > 0 && b.line.untold > 0; most-- {",
			without: "b.line.untold > 0; {",
			test:    "TestPlacesComeAFewAtATime",
		},
		{
			name:    "those who wait hear that others have come after them",
			fix:     "if p.Place == e.place.Place && p.Why == e.place.Why {",
			without: "if p == e.place {",
			test:    "TestPlacesComeAFewAtATime",
		},
		{
			name:    "a user fills the queue",
			fix:     "limits.Waiting > 0 && b.line",
			without: "false && b.line",
			test:    "TestTheQueueIsFull",
		},
		{
			name:    "the queue grows without end",
			fix:     "limits.AllWaiting > 0 && len",
			without: "false && len",
			test:    "TestTheQueueIsFull",
		},
		{
			name:    "each change writes all who wait",
			fix:     "if j.file == nil || j.rows",
			without: "if j.close(); j.file == nil || j.rows",
			test:    "TestTheJournal",
		},
		{
			name:    "a service manager that is busy holds up the arbiter",
			fix:     "a.storing.add(c.peer.UID, func() {",
			without: "func(_ int, do func()) { do() }(c.peer.UID, func() {",
			test:    "TestASlowServiceManager",
		},
		{
			name:    "a busy arbiter is asked once",
			fix:     "if left -= wait; left < 0 {",
			without: "if left -= wait; true {",
			test:    "TestPatiently",
		},
		{
			name:    "the arbiter does not see that its record was lost",
			fix:     "if lost == (Changes{}) {",
			without: "if true {",
			test:    "TestALostRecordIsWrittenAgain",
		},
		{
			name:    "each subordinate uid is a user of its own for the limits",
			fix:     "p.UID, p.User = who.UID, who.Name",
			without: "p.User = who.Name",
			test:    "TestSubordinateUidsAreTheirOwner",
		},
		{
			name:    "by which uid a user came is not recorded",
			fix:     "p.Via = p.UID",
			without: "p.Via = 0",
			test:    "TestSubordinateUidsAreTheirOwner",
		},
		{
			name:    "a uid of no user is refused as if the arbiter were busy",
			fix:     "return p, refuse(finding.LeaseUser, s.Message, s.Remedy)",
			without: "return p, refuse(finding.LeaseBusy, s.Message, s.Remedy)",
			test:    "TestStrangers",
		},
		{
			name:    "a name service that hangs stops the arbiter",
			fix:     "\tgo func() {\n\t\twho, refused := a.Describe(ctx, peer)\n",
			without: "\twho, refused := a.Describe(ctx, peer)\n\tgo func() {\n",
			test:    "TestWhoIsNotKnownYetHoldsUpNoOther",
		},
		{
			name:    "any number of connections wait until it is known who they are",
			fix:     "len(a.arriving) >= maxArriving",
			without: "len(a.arriving) >= maxArriving+1",
			test:    "TestThereIsRoomAgain",
		},
		{
			name:    "the arbiter ends while it is found out who has connected",
			fix:     "len(a.conns)+len(a.arriving) == 0",
			without: "len(a.conns) == 0",
			test:    "TestWhoArrivesKeepsTheArbiter",
		},
	}
}
