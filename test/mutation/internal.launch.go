package main

func internalLaunch() []mutation {
	return []mutation{
		{
			name:    "a lease of podman with a time does not end what it has left behind",
			fix:     "return j.Limit > 0 && (",
			without: "return false && (",
			test:    "TestWhoseLease",
		},
	}
}
