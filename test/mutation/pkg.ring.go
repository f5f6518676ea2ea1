package main

func pkgRing() []mutation {
	return []mutation{
		{
			name:    "a ring table by index and by address counts the indices only",
			fix:     "return max(t.cards(), n, len(t.IDs))",
			without: "return max(t.cards(), n)",
			test:    "TestMixedIDs",
		},
		{
			name:    "HyperDex is thought to choose past the end of a table",
			fix:     "case i >= count:",
			without: "case i >= 2*count:",
			test:    "TestReadIsTheVendorsRule",
		},
		{
			name:    "a container's table closes a chain, or joins two arcs",
			fix:     "\tt.put(-1, left)\n",
			without: "",
			test:    "TestEveryArcInAContainer",
		},
		{
			name:    "the whole ring that a container has is a chain in its table",
			fix:     " || r.Looped() && n == len(t.own) {",
			without: " {",
			test:    "TestEveryArcInAContainer",
		},
		{
			name:    "a container's table wants cables that lead out of the container",
			fix:     "\t\tif !r.ofContainer() {",
			without: "\t\tif true {",
			test:    "TestEveryArcInAContainer",
		},
		{
			name:    "a table whose links are not in the order of the cables has nothing wrong",
			fix:     "\tr.checkHyperdex()\n",
			without: "",
			test:    "TestFileOrder",
		},
		{
			name:    "one cable of two LPUs is taken for a ring",
			fix:     "\t\tcables[h.cable()]-- //",
			without: "\t\t//",
			test:    "TestFixturesYieldTheirCode",
		},
		{
			name:    "nothing is said of several rings that HyperDex takes for one",
			fix:     "\tif r.forHyperdex() && r.Refused() == nil {\n",
			without: "\tif false {\n",
			test:    "TestFixturesYieldTheirCode",
		},
		{
			name:    "a container with more LPUs than its ring table takes some for others",
			fix:     "const otherCards = 1000",
			without: "const otherCards = 2",
			test:    "TestATableOfFewerCards",
		},
	}
}
