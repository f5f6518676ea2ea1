package main

func cmdInternalCli() []mutation {
	return []mutation{
		{
			name:    "a kubelet with another directory is taken for none",
			fix:     "append(named, plugin.PodResources()...)",
			without: "append(named, plugin.DefaultPodResources)",
			test:    "TestWhereAKubeletIs", pkg: "cmd/lpuctl",
		},
		{
			name:    "an answer that has begun is cut off when serve ends or reads its config file again",
			fix:     "_ = server.Shutdown(patience)",
			without: "_, _ = patience, server.Close()",
			test:    "TestAnAnswerThatHasBegunIsWhole", pkg: "cmd/internal/cli",
		},
	}
}
