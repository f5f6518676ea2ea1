package main

func internalLaunch() []mutation {
	return []mutation{
		{
			name:    "a command goes on when root has ended its lease",
			fix:     "go h.hear(ctx, ended)\n",
			without: "\n",
			test:    "TestRootEndsTheLeaseOfACommand", pkg: "cmd/lpuctl",
		},
	}
}
