package main

func pkgFinding() []mutation {
	return []mutation{
		{
			name:    "a lost card is said once for itself and once for its ring",
			fix:     "lost[f.Subject] })",
			without: "false })",
			test:    "TestForPeople",
		},
		{
			name:    "half a command is run",
			fix:     "slices.ContainsFunc(commands, placeholder().MatchString)",
			without: "slices.Contains(commands, \"\")",
			test:    "TestFixes", pkg: "internal/doctor",
		},
		{
			name:    "devices with the same fault are a line each",
			fix:     "f.Subject = \"\"\n",
			without: "",
			test:    "TestForPeople",
		},
	}
}
