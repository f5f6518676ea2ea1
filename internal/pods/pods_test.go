package pods

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestANodeWithoutAKubelet: no pod has an LPU, and all can be leased.
func TestANodeWithoutAKubelet(t *testing.T) {
	dir := t.TempDir()
	n := Node{Root: host.Root(dir), StateDir: dir, SpecDir: dir}
	if _, err := n.Ask(t.Context()); !errors.Is(err, ErrNoKubelet) {
		t.Error(err)
	}
	if held, err := n.Holders(t.Context()); len(held) > 0 || err != nil {
		t.Error(held, err)
	}
	view := lease.View{Inventory: &discovery.Inventory{}}
	l := Leasing{Node: n, Remedy: finding.RemedyOf}
	l.Look(t.Context(), &view)
	if why, _ := l.ClosedSince(nil); why != "" || view.Closed != "" {
		t.Error(why, view.Closed)
	}
}

// TestAKubeletThatIsGone: a socket at which no program listens is no kubelet that says that no pod has an LPU.
func TestAKubeletThatIsGone(t *testing.T) {
	dir := t.TempDir()
	plant.File(t, filepath.Join(dir, plugin.DefaultPodResources), "")
	n := Node{Root: host.Root(dir), StateDir: dir, SpecDir: dir}
	_, err := n.Ask(t.Context())
	if err == nil || !strings.Contains(finding.RemedyOf(err), "sudo rm "+filepath.Join(dir, plugin.DefaultPodResources)) {
		t.Errorf("%v: %s", err, finding.RemedyOf(err))
	}
	view := lease.View{Inventory: &discovery.Inventory{}}
	l := Leasing{Node: n, Remedy: finding.RemedyOf}
	if l.Look(t.Context(), &view); !strings.HasPrefix(view.Closed, "it cannot be known which LPUs pods have: ") || view.ClosedRemedy == "" {
		t.Errorf("%q %q", view.Closed, view.ClosedRemedy)
	}
}

// TestReplay: on a copy of a machine pods have what was recorded, and what was not known there is not known.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	n := Node{Root: host.Root(dir), StateDir: dir, SpecDir: dir}
	card := pci.Address{Bus: 1}
	end := Replay(n.Root, Recorded{Holders: map[pci.Address]string{card: "pod a/b, container c"}, Unknown: "no answer"})
	if held, err := n.Holders(t.Context()); held[card] != "pod a/b, container c" || err == nil || err.Error() != "no answer" {
		t.Error(held, err)
	}
	end()
	if held, err := n.Holders(t.Context()); len(held) > 0 || err != nil {
		t.Error(held, err)
	}
}
