package main

func internalTop() []mutation {
	return []mutation{
		{
			name:    "top shows what is not known as 0",
			fix:     "return fmt.Sprintf(\"%*s\", barColumns+5, unknown)\n\t}\n\tnumber",
			without: "value = new(float64)\n\t}\n\tnumber",
			test:    "TestUnknownIsNeverZero",
		},
		{
			name:    "top has a bar without a limit",
			fix:     "if limit <= 0 {\n\t\treturn fmt.Sprintf",
			without: "if limit < 0 {\n\t\treturn fmt.Sprintf",
			test:    "TestBars",
		},
		{
			name:    "a line of top is wider than the terminal",
			fix:     "lines[i] = ansi.Truncate(line, v.Width, \"\")\n\t}\n\treturn strings.Join(lines, \"\\n\")\n}\n\n// table",
			without: "lines[i] = line\n\t}\n\treturn strings.Join(lines, \"\\n\")\n}\n\n// table",
			test:    "TestEveryScreenFits",
		},
		{
			name:    "the name of a program steers the terminal of top",
			fix:     ".Replace(shell.Printable(text))",
			without: ".Replace(text)",
			test:    "TestNamesSteerNoTerminal",
		},
		{
			name:    "top does not stand still when it is paused",
			fix:     "still := *s\n\t\tkept.lpus[a] = &still",
			without: "kept.lpus[a] = s",
			test:    "TestPause",
		},
		{
			name:    "q quits top while a filter is typed",
			fix:     "case v.typing:\n\t\tv.edit",
			without: "case v.typing && key != \"q\":\n\t\tv.edit",
			test:    "TestFilter",
		},
		{
			name:    "top believes that sensors are well which it has not read",
			fix:     "l.Usable, l.Health = false, discovery.Unhealthy",
			without: "_ = l.Health",
			test:    "TestMetrics",
		},
	}
}

func cmdLpuctlTop() []mutation {
	return []mutation{
		{
			name:    "top asks cards for what serve has read just now",
			fix:     "k.watcher.LeaveSensors(k.said != nil && len(k.read) > 0)",
			without: "k.watcher.LeaveSensors(false)",
			test:    "TestSensorsOfServe",
		},
		{
			name:    "top leaves its screen behind",
			fix:     "v.AltScreen = true",
			without: "v.AltScreen = false",
			test:    "TestScreen",
		},
	}
}

func packagingMan() []mutation {
	return []mutation{
		{
			name:    "two packages have one manual page",
			fix:     "if c.Program != \"\" {",
			without: "if false {",
			test:    "TestOnePageOfAProgram",
		},
	}
}
