package plugin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// TestSeriesAreFew: a server makes no more than so many samples with everything on, each LPU in a container of its own and cordoned.
func TestSeriesAreFew(t *testing.T) {
	for lpus, limit := range map[int]int{8: 300, 16: 500} {
		r := newRig(t, simulate.Node{Profile: "orion", LPUs: lpus}, nil)
		inv, err := discovery.Scan(t.Context(), r.root, discovery.Options{Sensors: true})
		if err != nil {
			t.Fatal(err)
		}
		lister, cordons := &podLister{}, health.Cordons{}
		for i, l := range inv.LPUs {
			lister.ids = append(lister.ids, cdi.AddressName(l.Address))
			lister.run("namespace", fmt.Sprint("pod", i/2), cdi.AddressName(l.Address), cdi.AddressName(inv.LPUs[(i+2)%lpus].Address))
			cordons[l.Address.String()] = health.Cordon{Reason: "test"}
		}
		r.plugin.Update(t.Context(), found(inv.WithCordons(cordons, nil)))
		server := &Server{Plugin: r.plugin, Resource: DefaultResource, Log: r.plugin.log}
		server.readPods(t.Context(), lister.serve(t, t.TempDir()))
		var text bytes.Buffer
		if err := node.WriteMetrics(&text, server.Metrics("version", "1", "goversion", "1")...); err != nil {
			t.Fatal(err)
		}
		samples := 0
		for line := range strings.Lines(text.String()) {
			if !strings.HasPrefix(line, "#") {
				samples++
			}
		}
		t.Logf("%d LPUs: %d samples", lpus, samples)
		if samples > limit || samples < 10*lpus {
			t.Errorf("%d samples of %d LPUs, more than %d or too few:\n%s", samples, lpus, limit, &text)
		}
	}
}
