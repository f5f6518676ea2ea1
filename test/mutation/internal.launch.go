package main

func internalLaunch() []mutation {
	return []mutation{
		{
			name:    "a command goes on when root has ended its lease",
			fix:     "go h.hear(ctx, ended)\n",
			without: "\n",
			test:    "TestRootEndsTheLeaseOfACommand", pkg: "cmd/lpuctl",
		},
		{
			name:    "a refusal of run comes after a warning of the memory that the command could lock",
			fix:     "\tif err := j.raiseMemlock(); err != nil {\n",
			without: "\tj.warnOfMemlock()\n\tif err := j.raiseMemlock(); err != nil {\n",
			test:    "TestMemlockIsOfNoMatterToARefusal",
		},
		{
			name:    "a lease of podman with a time does not end what it has left behind",
			fix:     "return j.Limit > 0 && (",
			without: "return false && (",
			test:    "TestWhoseLease",
		},
		{
			name:    "a tutorial shows another message than run prints",
			fix:     "leased %s as %s until %s: ",
			without: "given %s as %s until %s: ",
			test:    "TestTutorials", pkg: "cmd/lpuctl",
		},
	}
}
