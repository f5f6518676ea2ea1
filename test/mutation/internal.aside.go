package main

func internalAside() []mutation {
	return []mutation{
		{
			name:    "a read that waits for its turn in Go is taken for one that hangs",
			fix:     " || string(number) == strconv.Itoa(unix.SYS_FUTEX)",
			without: " || string(number) == strconv.Itoa(-unix.SYS_FUTEX)",
			test:    "TestThreadAsleep",
		},
		{
			name:    "a relay closes a socket before its program does, whose close is then the last",
			fix:     "\tif what == orderDrop && at < w.n {",
			without: "\tif what == orderDrop {\n\t\tforget(w, at)\n\t} else if what == orderDrop && at < w.n {",
			test:    "TestRelay",
		},
		{
			name:    "a relay outlives its program",
			fix:     "case err != 0 || n == 0:\n\t\treturn false",
			without: "case err != 0 || n == 0:\n\t\treturn true",
			test:    "TestARelayEndsWithItsProgram",
		},
		{
			name:    "a process that reads aside keeps what this one has open",
			fix:     "\tcloseOthers(w)\n",
			without: "",
			test:    "TestWhatItHasOpen",
		},
	}
}
