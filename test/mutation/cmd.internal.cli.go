package main

func cmdInternalCli() []mutation {
	return []mutation{
		{
			name:    "a kubelet with another directory is taken for none",
			fix:     "append(named, plugin.PodResources()...)",
			without: "append(named, plugin.DefaultPodResources)",
			test:    "TestWhereAKubeletIs", pkg: "cmd/lpuctl",
		},
	}
}
