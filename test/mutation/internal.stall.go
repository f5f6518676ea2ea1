package main

func internalStall() []mutation {
	return []mutation{
		{
			name:    "a card is taken for one that hangs because the machine is busy",
			fix:     "for range deadlinesAtMost {",
			without: "for range 1 {",
			test:    "TestABusyMachineIsNoHang",
		},
		{
			name:    "a card that hangs has its deadline thirty times",
			fix:     "if slept == looksAsleep {",
			without: "if slept > looksAsleep {",
			test:    "TestABusyMachineIsNoHang",
		},
	}
}
