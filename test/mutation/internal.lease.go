package main

func internalLease() []mutation {
	return []mutation{
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
			fix:     "e.Grant == nil || e.Gone })",
			without: "e.Grant == nil })",
			test:    "TestEndedLeasesAreNotRecorded", pkg: "cmd/lpuctl",
		},
		{
			name:    "leases that ended with their arbiter keep their LPUs from pods",
			fix:     "\t\t\ta.endLeases()\n",
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
			fix:     "\tgo func() {\n\t\tpeer, refused := a.Describe(ctx, peer)\n",
			without: "\tpeer, refused := a.Describe(ctx, peer)\n\tgo func() {\n",
			test:    "TestWhoIsNotKnownYetHoldsUpNoOther",
		},
		{
			name:    "any number of connections wait until it is known who they are",
			fix:     "len(a.arriving) >= maxArriving",
			without: "len(a.arriving) >= maxArriving+1",
			test:    "TestWhoIsNotKnownYetHoldsUpNoOther",
		},
		{
			name:    "the arbiter ends while it is found out who has connected",
			fix:     "len(a.conns)+len(a.arriving) == 0",
			without: "len(a.conns) == 0",
			test:    "TestWhoArrivesKeepsTheArbiter",
		},
	}
}
