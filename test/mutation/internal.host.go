package main

func internalHost() []mutation {
	return []mutation{
		{
			name:    "a cordon is told at the next scan",
			fix:     "\t\t\tlast = state\n\t\t\tchanged()\n",
			without: "\t\t\tlast = state\n",
			test:    "TestFollowCordons", pkg: "internal/node",
		},
		{
			name:    "a fixture lacks the links that were read",
			fix:     "\td.linked(name, string(buffer[:n]))\n",
			without: "",
			test:    "TestRecordHasWhatAScanReads", pkg: "internal/certify",
		},
		{
			name:    "a card is called broken when descriptors run out",
			fix:     "t.shortage.CompareAndSwap(nil, &err)",
			without: "_ = err",
			test:    "TestAScanIsRightOrFails", pkg: "pkg/discovery",
		},
		{
			name:    "a watcher holds descriptors of attributes",
			in:      "Kept.Read",
			fix:     "\tdefer func() { _ = unix.Close(fd) }()\n",
			without: "",
			test:    "TestAWatcherHoldsFewDescriptors", pkg: "internal/watch",
		},
	}
}
