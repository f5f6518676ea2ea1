package main

func cmdInternalCLI() []mutation {
	return []mutation{
		{
			name:    "colours go into a pipe",
			fix:     "auto && t.Screen.Redraws, auto && t.Screen.ErrRedraws",
			without: "auto, auto",
			test:    "TestColorOnTerminals", pkg: "cmd/lpuctl",
		},
		{
			name:    "NO_COLOR is not heeded",
			fix:     `auto := value("NO_COLOR") == ""`,
			without: `auto := value("NO_COLOR") != "x"`,
			test:    "TestColorOnTerminals",
			pkg:     "cmd/lpuctl",
		},
		{
			name:    "a column that has no room breaks the lines of a terminal",
			fix:     "c.Room == Usual && need+least > t.Screen.Width",
			without: "c.Room == Usual && need+least < 0",
			test:    "TestFitting",
		},
		{
			name:    "what the locale cannot show is printed",
			fix:     "return standIns().Replace(text)",
			without: "_ = standIns\n\treturn text",
			test:    "TestASCII",
			pkg:     "cmd/lpuctl",
		},
		{
			name:    "the nearest word is named for a command that people know from elsewhere",
			fix:     "commandHabits()[group.CommandPath()+\" \"+name]; ok {",
			without: "commandHabits()[group.CommandPath()+\" \"+name]; ok && false {",
			test:    "TestHabits",
			pkg:     "cmd/lpuctl",
		},
	}
}
