package main

func internalOwner() []mutation {
	return []mutation{
		{
			name:    "a shortage of descriptors takes all LPUs from their owner",
			fix:     "before != nil && host.Spare() != nil {",
			without: "false {",
			test:    "TestAShortageChangesNoOwner",
		},
		{
			name:    "an LPU is given twice because what the kubelet says is behind the plugin",
			fix:     "return max(0, g.Settle-age)",
			without: "return max(0, -age)",
			test:    "TestSettle",
		},
		{
			name:    "what two pods have is said late",
			fix:     "const askInterval = 4 * time.Second",
			without: "const askInterval = 10 * time.Second",
			test:    "TestGivenTwice",
		},
		{
			name:    "an LPU that one pod has after another is said to be given twice",
			fix:     `return again[a].ID == ""`,
			without: "return again == nil && twice == nil",
			test:    "TestGivenTwice",
		},
		{
			name:    "what is to be done about a broken record is not said",
			fix:     "finding.RemedyOf(err))",
			without: "\"\")",
			test:    "TestRemedyOfWhatIsNotKnown",
		},
		{
			name:    "what the kubelet said before the owner changed counts",
			fix:     "g.asked.under == said.under && ",
			without: "",
			test:    "TestKubeletAway",
		},
		{
			name:    "a kubelet that hangs stalls who hands out LPUs",
			fix:     "v, state, now := g.sight()",
			without: "g.showing.Lock()\n\tdefer g.showing.Unlock()\n\tv, state, now := g.sight()",
			test:    "TestAKubeletThatHangs",
		},
		{
			name:    "an LPU is given twice while the owner changes",
			fix:     "lock, err := g.hold(ctx)",
			without: "lock, err := (*os.File)(nil), error(nil)",
			test:    "TestNobodyIsGivenOneTwice",
		},
		{
			name:    "pods are given LPUs that were leased before the program started",
			fix:     "\t\tv.leased = g.leased\n",
			without: "",
			test:    "TestLeasedBeforeAProgramStarts", pkg: "cmd/lpuctl",
		},
		{
			name:    "a record of leases that cannot be read says to a program that starts that no user has one",
			fix:     "\t\t\tv.unread = err\n",
			without: "\t\t\t_ = err\n",
			test:    "TestLeased",
		},
		{
			name:    "what a pod was given a moment ago is leased before the kubelet names that pod",
			fix:     "\t\tg.note()\n",
			without: "",
			test:    "TestStanding",
		},
		{
			name:    "leases are granted beside the DRA driver",
			fix:     "[]Owner{s.Record.Owner, Plugin, DRA}",
			without: "[]Owner{Plugin}",
			test:    "TestKubernetesNeedsAPool", pkg: "cmd/lpuctl",
		},
		{
			name:    "leases are granted beside a device plugin of a release before",
			fix:     "listens, unseen := f.listens()",
			without: "listens, unseen := false, error(nil)",
			test:    "TestStanding",
		},
		{
			name:    "what cannot be seen is taken for a no",
			fix:     "if err := s.Unknown[o]; err != nil {",
			without: "if err := s.Unknown[o]; false {",
			test:    "TestStanding",
		},
		{
			name:    "a lease is granted while a program hands out its first LPU",
			fix:     "\t_ = g.show() // before: who",
			without: "\t// before: who",
			test:    "TestStanding",
		},
		{
			name:    "a pod that is being removed takes the LPUs for good",
			fix:     "if g.Insist && g.show() == nil {",
			without: "if false {",
			test:    "TestInsist",
		},
		{
			name:    "serve gives away what a user has leased",
			fix:     "; leased {\n",
			without: "; leased && false {\n",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a file that does not say who hands out LPUs says the plugin",
			fix:     "\tif err != nil {\n\t\treturn Record{}, err\n",
			without: "\tif err != nil {\n\t\treturn Record{Owner: Plugin}, nil\n",
			test:    "TestChangeovers", pkg: "internal/dra/claim",
		},
		{
			name:    "the driver hands out LPUs while the kubelet does not say what pods have",
			fix:     "return said.held, err\n}",
			without: "return said.held, nil\n}",
			test:    "TestChangeovers", pkg: "internal/dra/claim",
		},
	}
}
