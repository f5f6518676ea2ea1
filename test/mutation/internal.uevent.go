package main

func internalUevent() []mutation {
	return []mutation{
		{
			name:    "an overflow of events hides what comes later",
			fix:     " || hasLost && errors.Is(failed, unix.ENOBUFS):",
			without: " || errors.Is(failed, unix.ENOBUFS):",
			test:    "TestOverflow",
		},
		{
			name:    "a forged event counts",
			fix:     "return ok && sender.Pid == 0 && sender",
			without: "return ok && sender",
			test:    "TestForged",
		},
	}
}
