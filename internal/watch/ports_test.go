package watch

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestErrorsOfPorts: what a root port counts is a warning about the port, and never about a card.
func TestErrorsOfPorts(t *testing.T) {
	root, now := plant.Capture(t, e1000e), time.Hour
	w := New(root, Options{Scan: discovery.Options{Models: captureModels(t)}}, func() time.Duration { return now })
	look := func() *discovery.Inventory {
		now += fullPeriod
		inv, err := w.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	if inv := look(); len(inv.Problems) != 0 || len(inv.LPUs[0].Reading.Ports) != 3 {
		t.Fatalf("problems %v; ports %v", inv.Problems, inv.LPUs[0].Reading.Ports)
	}
	port := w.latest.LPUs[0].Reading.Ports[0]
	plant.File(t, filepath.Join(root, port.Dir(), "aer_rootport_total_err_fatal"), "1\n")
	inv := look()
	if len(inv.Problems) != 1 || inv.Problems[0].ID != finding.PortErrors || inv.Problems[0].Subject != port.String() {
		t.Errorf("problems %v", inv.Problems)
	}
	for _, l := range inv.LPUs {
		if l.Health != discovery.Healthy || len(l.Reasons) != 0 {
			t.Errorf("%s is %s: %v", l.Name, l.Health, l.Reasons)
		}
	}
}
