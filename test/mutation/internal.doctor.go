package main

func internalDoctor() []mutation {
	return []mutation{
		{
			name:    "what could not be looked at is called well",
			fix:     "case len(s.Unseen) > 0:",
			without: "case false:",
			test:    "TestStates",
		},
		{
			name:    "one fault that follows folds those that do not",
			fix:     "f.Severity != finding.Note && !because(causes(f.ID))",
			without: "f.Severity != finding.Note && !because(causes(f.ID)) && from == nil",
			test:    "TestStates",
		},
		{
			name:    "a check that hangs holds up the others",
			fix:     "\tcase <-ctx.Done():\n\t}\n\tselect {",
			without: "\tcase <-make(chan int):\n\t}\n\tselect {",
			test:    "TestALinkThatHangs",
		},
		{
			name:    "a command about an LPU that is in use is run",
			fix:     "fix.Kept = inUse(f.Subject)",
			without: "_ = inUse",
			test:    "TestFixes",
		},
	}
}
