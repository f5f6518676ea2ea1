package main

func internalPods() []mutation {
	return []mutation{
		{
			name:    "serve gives away what a claim has that lost its files",
			fix:     "\t\tif err == nil {\n\t\t\tclaims.Hear(said.Claims())",
			without: "\t\tif err == nil {\n\t\t\t_ = said.Claims()",
			test:    "TestServeFollowsTheOwner", pkg: "cmd/lpuctl",
		},
		{
			name:    "a kubelet that hangs delays each lease that is refused all the same",
			fix:     `if closed != "" { // what`,
			without: "if _ = closed; false { // what",
			test:    "TestAKubeletIsNotAskedInVain", pkg: "cmd/lpuctl",
		},
		{
			name:    "who leases LPUs does not know which of them claims have",
			fix:     "maps.Copy(all, claimed)",
			without: "maps.Copy(said.InPods(), claimed)",
			test:    "TestAWorldThatChanges", pkg: "cmd/lpuctl",
		},
		{
			name:    "a kubelet with another directory is taken for none",
			fix:     "append(named, plugin.PodResources()...)",
			without: "append(named, plugin.DefaultPodResources)",
			test:    "TestWhereAKubeletIs", pkg: "cmd/lpuctl",
		},
		{
			name:    "no pod of a recorded machine has an LPU",
			fix:     "\t\treturn r.holders()\n",
			without: "\t\t_ = r\n\t\treturn nil, nil\n",
			test:    "TestReplay",
		},
	}
}
