package main

func internalIsolate() []mutation {
	return []mutation{
		{
			name:    "the working directory leads to hidden nodes",
			fix:     "return os.Chdir(here)",
			without: "_ = here\n\treturn nil",
			test:    "TestNoWayPastTheCover",
		},
		{
			name:    "a directory that was open before leads to hidden nodes",
			fix:     "unix.CloseOnExec(fd)",
			without: "",
			test:    "TestNoWayPastTheCover",
		},
	}
}
