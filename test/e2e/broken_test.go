package e2e

import (
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/broken"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestBroken: on nodes that are broken podman fails, or gives containers something else than was promised, until what doctor prints was
// carried out.
func TestBroken(t *testing.T) {
	p := newPodman(t)
	path := asPodman(t, p)
	t.Cleanup(broken.RemoveTools)
	for asked, names := range map[string][]string{
		"lpu0": {
			"the spec gives the node of another card",
			"the spec lacks a card",
			"node numbers that are old",
			"a second file defines our devices",
		},
		"lpu2": {
			"no driver is bound",
			"a card is left to a virtual machine",
			"a device file is missing",
			"a regular file is in place of a device file",
			"a device file is a directory",
			"a device file is a dangling link",
			"no driver, and no spec",
		},
		"lpu0,lpu1,lpu2,lpu3": {
			"no spec is in place",
			"the spec is cut",
			"the spec is empty",
			"the spec is a directory",
			"the spec is a link to nowhere",
			"the spec says a version that is too low",
			"a mounted directory is gone",
			"the ring table of containers was changed",
			"the ring tables of containers are gone",
			"a file of another crashes runtimes",
		},
	} {
		e := broken.Engine{Numbers: machine.Numbers(t, 4), Proves: func(t *testing.T, root string) (bool, string) {
			t.Helper()
			defer machine.AsNode(t, root)()
			r := machine.Run(t, proofOf(t, root, []string{path}, "-o", "json", "--device", asked)...)
			if strings.Contains(r.Stderr, "lpu2 is not available") { // so there is no proof, and podman is asked
				r = p.Run(t, "true", device(asked)...)
				return r.Code == 0, r.Stderr
			}
			return readProofs(t, r).Engines[0].State == "proved", r.Stdout + r.Stderr
		}}
		e.On(t, names...)
	}
	nothingLeft(t, path)
}
