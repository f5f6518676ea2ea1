package main

// mutation is a fix that is taken out: in a file, the text of the fix is replaced.
type mutation struct {
	name         string // what goes wrong without the fix
	file         string // from the root of the repository
	fix, without string
	test, pkg    string // that must fail then
}

const (
	world    = "TestAWorldThatChanges"
	program  = "./cmd/lpuctl"
	driftGo  = "pkg/cdi/drift.go"
	nodeSpec = "pkg/node/spec.go"
)

// mutations are the fixes that keep lpuctl right while the node changes.
func mutations() []mutation {
	return []mutation{
		{
			"the name of a card that is gone stays", driftGo,
			"	for i, h := range have.Devices {\n", "	for i, h := range have.Devices[:0] {\n", world, program,
		},
		{
			"an edited path on the host stays", driftGo,
			"hostPath(w.node) != hostPath(h.node)", "w.node.Path != h.node.Path", world, program,
		},
		{
			"a node for every container stays", "pkg/cdi/validate_effective.go",
			`givenBy("containerEdits", &spec.ContainerEdits),`, `givenBy("containerEdits", &specs.ContainerEdits{}),`, world, program,
		},
		{
			"a ring table that breaks switches the rings off", "pkg/discovery/ringtable.go",
			"if s.bindRings(inv, last) {", "if false {", world, program,
		},
		{
			"the absent cards of the last cabling hide cards that are there", "pkg/discovery/scan.go",
			"slices.Clone(found)", "found", world, program,
		},
		{
			"a conflict about one device leaves the others as they were", "pkg/cdi/lock.go",
			"conflict != nil && !ok {", "conflict != nil || ok {", world, program,
		},
		{
			"a conflict is not noticed", nodeSpec,
			"bad = append(bad, c.Devices...)", "_ = c", world, program,
		},
		{
			"serve does not renew variables when it starts", "pkg/node/snapshot.go",
			"upkeep: upkeep{renew: true},", "upkeep: upkeep{},", world, program,
		},
		{
			"what cannot be handed out is preferred", "pkg/plugin/calls.go",
			"		return err != nil\n", "		return false\n", world, program,
		},
		{
			"a spec of no LPU stays", nodeSpec,
			"		_, err = held.Remove()\n", "", world, program,
		},
	}
}
