package main

func internalRuntimes() []mutation {
	return []mutation{
		{
			name:    "a directory that an old runtime needs is not missed",
			fix:     "\t\t\tc.requireAllDirs(r, dirs)\n",
			without: "",
			test:    "TestOthers",
		},
		{
			name:    "a result of the self-check never gets old",
			fix:     "now.SinceBoot-r.SinceBoot > limit",
			without: "false",
			test:    "TestResultFileIsFollowed",
		},
		{
			name:    "an older result of the self-check replaces a younger one",
			fix:     "there.After(r.Moment) && ",
			without: "false && ",
			test:    "TestAYoungerResultStays",
		},
		{
			name:    "a result that is still to come keeps all others out",
			fix:     " && !there.After(now)",
			without: "",
			test:    "TestAYoungerResultStays",
		},
		{
			name:    "Environment= beats a file of variables",
			fix:     "\t\t\tassign(env, environmentLines(string(data)))\n",
			without: "\t\t\tassign(env, append(environmentLines(string(data)), u.set...))\n",
			test:    "TestService",
		},
		{
			name:    "a Docker in a container is taken for the machine's",
			fix:     `len(m.status(dir, "NSpid")) > 1`,
			without: "false",
			test:    "TestOthers",
		},
		{
			name:    "a wrong type in containers.conf is no matter",
			fix:     "err = k.checkTypes(d, r)",
			without: "err = nil",
			test:    "TestOthers",
		},
		{
			name:    "what is not known about a runtime is a yes",
			fix:     "r.CDI == On && r.AfterRestart == On && !r",
			without: "!r",
			test:    "TestOnIsNotEnough",
		},
		{
			name:    "a result of another boot counts",
			fix:     "r.Boot != now.Boot",
			without: "false",
			test:    "TestResultsThatDoNotCount",
		},
		{
			name:    "a directory that is missing is no matter to an early CDI library",
			fix:     "c.requireAllDirs(r, dirs)",
			without: "",
			test:    "TestOthers",
		},
	}
}
