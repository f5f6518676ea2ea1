package main

func internalFilelock() []mutation {
	return []mutation{
		{
			name:    "a lock that others can open is used",
			fix:     "err == nil && info.Mode().Perm()&0o077 == 0",
			without: "err == nil && info != nil",
			test:    "TestTheLockIsItsOwnersAlone", pkg: "pkg/cdi",
		},
		{
			name:    "serve is not seen when its lock file was removed",
			fix:     "p.lock != nil && isAt(p.lock, name)",
			without: "p.lock != nil",
			test:    "TestPresence",
		},
	}
}
