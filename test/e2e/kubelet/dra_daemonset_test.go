package kubelet

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestDRADaemonSet runs the driver as the chart does: by its image, with the rights and the token of its service account, a network of its
// own, and no capability. Then the release changes its mode, and back, with pods that keep what they have.
func TestDRADaemonSet(t *testing.T) {
	b := newDRA(t)
	machine.BindMount(t, "/var/lib/lpuctl", nodeRoot+"/var/lib/lpuctl")
	for _, archive := range []string{os.Getenv("IMAGE"), os.Getenv("DRA_IMAGE")} {
		machine.Output(t, "ctr", "-n", "k8s.io", "images", "import", archive)
	}
	plugin := values{"mode": "plugin", "createNamespace": true, "dra": values{"draining": true}}
	_, err := kubectl("", "delete", "pod", "anchor", "--namespace", namespace)
	b.do(err)

	b.install(render(t, modeDRA()))
	b.waitPublished()
	b.checkConfined()
	b.waitSample(b.url(), "lpuctl_dra_registered 1")
	two := b.claimed("claim", 2)

	b.upgrade(modeDRA(), plugin)
	b.waitAllocatable(6)
	b.submit(podManifest("one", 1))
	one := b.check(t, b.inspect("one"), 1, true)[0]
	if slices.Contains(two, one) {
		t.Errorf("LPU %d is given twice", one)
	}

	b.upgrade(plugin, modeDRA())
	b.waitAllocatable(0)
	b.waitPublished(one)
	for _, lpu := range b.claimed("four", 4) {
		if lpu == one || slices.Contains(two, lpu) {
			t.Errorf("LPU %d is given twice", lpu)
		}
	}
	b.again("claim", 1, two)
	b.again("one", 1, []int{one})
	b.clean()
}

// upgrade does what Helm does when a release gets other values: it applies what is new, and deletes what is not there any more.
func (b *draBed) upgrade(from, to values) {
	b.t.Helper()
	key := func(o values) string { return fmt.Sprint(o["kind"], o["metadata"].(values)["name"]) }
	var stays []string
	items := render(b.t, to)
	for _, o := range items {
		stays = append(stays, key(o))
	}
	gone := slices.DeleteFunc(render(b.t, from), func(o values) bool { return slices.Contains(stays, key(o)) })
	if len(gone) > 0 {
		_, err := kubectl(listOf(b.t, gone), "delete", "-f", "-")
		b.do(err)
	}
	b.install(items)
}
