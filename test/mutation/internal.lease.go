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
	}
}
