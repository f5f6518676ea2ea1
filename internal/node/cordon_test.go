package node_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	cordon "github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
)

// cordoned are the names of the devices that are cordoned, and those that are not offered.
func cordoned(s *node.Snapshot) (cordoned, withheld string) {
	var names [2][]string
	for _, d := range s.Devices {
		if d.Cordoned != nil {
			names[0] = append(names[0], d.Name)
		}
		if !d.Offered() {
			names[1] = append(names[1], d.Name)
		}
	}
	return strings.Join(names[0], " "), strings.Join(names[1], " ")
}

// setCordons cordons the cards with these addresses, and no others.
func (p *program) setCordons(addresses ...string) {
	p.w.Helper()
	_, _, err := cordon.ChangeCordons(p.w.Context(), p.Memory.Cordons().Path, func(c cordon.Cordons) error {
		clear(c)
		for _, text := range addresses {
			a, err := pci.Parse(text)
			p.w.must(err)
			c[a] = cordon.Cordon{Reason: "a test", Since: time.Unix(1e9, 0).UTC(), By: "root(0)"}
		}
		return nil
	})
	p.w.must(err)
}

// TestSetApart: what the configuration keeps for leases is not offered, whatever becomes of the cordons in the file.
func TestSetApart(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.remember()
	p.Memory.SetApart = cordon.Cordons{{Bus: 0x46, Function: 1}: {Reason: "for leases", SetApart: true}}
	for _, cordons := range []struct {
		addresses []string
		names     string
	}{{nil, "lpu3"}, {[]string{"0000:45:00.1", "0000:46:00.1"}, "lpu2 lpu3"}, {nil, "lpu3"}} {
		p.setCordons(cordons.addresses...)
		if names, withheld := cordoned(p.update()); names != cordons.names || withheld != names {
			t.Errorf("cordoned %v: cordoned %q, withheld %q", cordons.addresses, names, withheld)
		}
	}
}

// TestCordons: a cordoned device is not offered, and that is all. Its health, the spec and what outlives the program stay.
func TestCordons(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.remember()
	p.update()
	spec, state := w.state(w.root+"/var/run/cdi"), p.Memory.Dir+"/health.json"
	before, err := os.ReadFile(state)
	w.must(err)
	p.setCordons("0000:45:00.1", "0000:99:00.1")
	for range 2 {
		s := p.update()
		names, withheld := cordoned(s)
		card := s.Inventory.LPUs[2]
		if names != "lpu2" || withheld != "lpu2" || health(s) != "HHHH" || card.Health != discovery.Healthy || !card.Usable {
			t.Errorf("cordoned %q, withheld %q, health %s, %+v", names, withheld, health(s), card)
		}
		if len(s.Inventory.Rings[0].DeadLinks) > 0 {
			t.Errorf("a cordon makes links dead: %v", s.Inventory.Rings)
		}
	}
	for sample, want := range map[string]string{
		`lpuctl_lpu_cordoned{lpu="lpu2",device="pci-0000-45-00.1"}`:                                 "1",
		`lpuctl_lpu_cordoned{lpu="lpu1",device="pci-0000-44-00.1"}`:                                 "0",
		`lpuctl_lpu_healthy{lpu="lpu2",device="pci-0000-45-00.1"}`:                                  "0",
		`lpuctl_lpu_reason{lpu="lpu2",device="pci-0000-45-00.1",reason="cordoned",severity="note"}`: "1",
		`lpuctl_spec_writes_total`: "0",
	} {
		if got := p.metric(sample); got != want {
			t.Errorf("%s is %s", sample, got)
		}
	}
	after, err := os.ReadFile(state)
	w.must(err)
	if now := w.state(w.root + "/var/run/cdi"); !slices.Equal(spec, now) || !bytes.Equal(before, after) {
		t.Errorf("a cordon changes files:\n%v\n%v\n%s%s", spec, now, before, after)
	}
	p.setCordons()
	if names, withheld := cordoned(p.update()); names != "" || withheld != "" {
		t.Errorf("uncordoned: %q, %q", names, withheld)
	}
	log := p.log.String()
	for _, line := range []string{
		`msg=cordoned device=pci-0000-45-00.1 lpu=lpu2 since=2001-09-09T01:46:40.000Z by=root(0) reason="a test"`,
		`msg=uncordoned device=pci-0000-45-00.1 lpu=lpu2`,
	} {
		if strings.Count(log, line) != 1 {
			t.Errorf("not once in the log: %s\n%s", line, log)
		}
	}
}

// TestCordonsThatCannotBeRead stay in force as long as the program runs; one that starts says that there are none.
func TestCordonsThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.remember()
	p.setCordons("0000:45:00.1")
	p.update()
	w.must(os.WriteFile(p.Memory.Cordons().Path, []byte("{"), 0o600))
	const problem = `lpuctl_problem{problem="cordons-unreadable",severity="warning"}`
	for range 2 {
		if names, _ := cordoned(p.update()); names != "lpu2" || p.metric(problem) != "1" {
			t.Errorf("cordoned %q, problem %s", names, p.metric(problem))
		}
	}
	if n := strings.Count(p.log.String(), "id=cordons-unreadable"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.log)
	}
	later := w.program()
	later.Memory = p.Memory
	if names, withheld := cordoned(later.update()); names != "" || withheld != "" || later.metric(problem) != "1" {
		t.Errorf("a program that starts: cordoned %q, withheld %q", names, withheld)
	}
	p.setCordons("0000:44:00.1")
	for _, p := range []*program{p, later} {
		if names, _ := cordoned(p.update()); names != "lpu1" {
			t.Errorf("after the next cordon: %q", names)
		}
	}
}

// TestFollowCordons: changes are told, also of a file in a directory that is not there yet, and nothing else is.
func TestFollowCordons(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.remember()
	told := make(chan bool, 100)
	done := make(chan bool)
	go func() {
		p.Memory.FollowCordons(t.Context(), func() { told <- true })
		close(done)
	}()
	t.Cleanup(func() { <-done })
	wait := func() {
		t.Helper()
		select {
		case <-told:
		case <-time.After(await.Limit):
			t.Fatal("not told")
		}
	}
	p.setCordons("0000:45:00.1")
	wait()
	p.update() // which writes other files there
	p.setCordons("0000:45:00.1")
	p.setCordons()
	wait()
	w.must(os.RemoveAll(p.Memory.Dir))
	wait()
	p.setCordons("0000:45:00.1")
	wait()
	if len(told) > 0 {
		t.Error("told more often than it changed")
	}
}
