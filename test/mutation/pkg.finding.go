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
			name:    "devices with the same fault are a line each",
			fix:     "f.Subject = \"\"\n",
			without: "",
			test:    "TestForPeople",
		},
	}
}
