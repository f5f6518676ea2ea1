package main

func internalAllocate() []mutation {
	return []mutation{
		{
			name:    "allocate names a cordoned LPU",
			fix:     "l.Fit() && l.Cordoned == nil &&",
			without: "l.Fit() &&",
			test:    "TestFree",
		},
		{
			name:    "allocate does not say that HyperDex cannot use the number of LPUs",
			fix:     "n&(n-1) != 0",
			without: "n < 1",
			test:    "TestUnusableSizes",
		},
	}
}
