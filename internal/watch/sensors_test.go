package watch_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/machines"
)

// TestSensorsAreReadSeldom: a watcher reads them every 10 s, and at each scan while they show a fault, so that hysteresis counts
// readings and not copies of one. What it tells in between are the last values, with their warnings.
func TestSensorsAreReadSeldom(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 2})
	now := time.Hour
	w := watch.New(root, watch.Options{}, func() time.Duration { return now })
	for i, step := range []struct {
		change func() error
		wait   time.Duration
		want   string
	}{
		{nil, 0, "healthy 41"},
		{func() error { return m.Set(0, "hwmon/temp1_input", "50000") }, 9 * time.Second, "healthy 41"},
		{nil, 11 * time.Second, "healthy 50"},
		{func() error { return m.Set(0, "hwmon/temp1_input", "hot") }, time.Second, "healthy 50"},
		{nil, 19 * time.Second, "healthy 44 unreadable-attribute"},
		{nil, time.Second, "healthy 44 unreadable-attribute"},
		{func() error { return m.Set(0, "hwmon/temp1_input", "51000") }, 19 * time.Second, "healthy 51"},
		// A firewall that trips is read once more at the next scan before it counts.
		{func() error { return m.Set(0, "firewall.u/status", "2") }, 20 * time.Second, "healthy 51 firewall"},
		{func() error { return m.Set(0, "hwmon/temp1_input", "52000") }, time.Second, "unhealthy 52 firewall"},
		{func() error { return m.Set(0, "firewall.u/status", "0") }, 10 * time.Second, "unhealthy 52 recovering"},
		{nil, time.Second, "unhealthy 52 recovering"},
		{nil, 2 * time.Second, "healthy 52"},
		// While it is in a reset nothing is known, and at once afterwards all.
		{func() error { return m.Set(0, "dev_offline", "1") }, time.Second, "healthy - offline"},
		{func() error {
			return errors.Join(m.Set(0, "dev_offline", "0"), m.Set(0, "hwmon/temp1_input", "60000"))
		}, time.Second, "healthy 60"},
		// Another card in the slot has sensors of its own.
		{func() error {
			return errors.Join(m.Unplug(0), m.Replug(0), m.Set(0, "hwmon/temp1_input", "61000"))
		}, time.Second, "healthy 61 rebound"}, // who used the one before has lost it
	} {
		if step.change != nil {
			machines.Must(t, step.change())
		}
		now += step.wait
		inv, err := w.Scan(t.Context())
		machines.Must(t, err)
		l := inv.LPUs[0]
		got := string(l.Health) + " -"
		if len(l.Temperatures) > 0 {
			got = fmt.Sprintf("%s %.0f", l.Health, l.Temperatures[0].Celsius)
		}
		if reasons := machines.Sorted(l.Reasons); reasons != "" {
			got += " " + reasons
		}
		if got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestFaultsOverTime: each fault that comes while a watcher looks, and that only it can tell, or tells otherwise than one reading.
func TestFaultsOverTime(t *testing.T) {
	count := func(kind string, n uint64) func(*simulate.Machine) error {
		return func(m *simulate.Machine) error { return m.CountErrors(0, kind, n) }
	}
	set := func(name, text string) func(*simulate.Machine) error {
		return func(m *simulate.Machine) error { return m.Set(0, name, text) }
	}
	for name, c := range map[string]struct {
		profile    string
		change     func(m *simulate.Machine) error
		at, after  string // health and reasons of the next reading, and 40 s later
		undo       func(m *simulate.Machine) error
		afterwards string // 40 s later
	}{
		"link x4": {
			"orion", func(m *simulate.Machine) error { return m.LinkNow(0, 0, 4) }, "healthy link-degraded", "healthy link-degraded",
			func(m *simulate.Machine) error { return m.LinkNow(0, 0, 16) }, "healthy ",
		},
		"link of generation 1": {
			"bertha", func(m *simulate.Machine) error { return m.LinkNow(0, 1, 0) }, "healthy link-degraded", "healthy link-degraded",
			func(m *simulate.Machine) error { return m.LinkNow(0, 5, 0) }, "healthy ",
		},
		"some corrected errors": {"orion", count("correctable", 100), "healthy ", "healthy ", nil, "healthy "},
		"many corrected errors": {
			"orion", count("correctable", 101), "healthy aer-correctable", "healthy aer-correctable", nil, "healthy aer-correctable",
		},
		"errors that are not fatal": {"orion", count("nonfatal", 1), "healthy aer-nonfatal", "healthy aer-nonfatal", nil, "healthy aer-nonfatal"},
		"fatal errors":              {"bertha", count("fatal", 1), "unhealthy aer-fatal", "unhealthy aer-fatal", nil, "unhealthy aer-fatal"},
		"memory errors": {
			"orion", set("mig.u/ecc_ue_cnt", "1"), "healthy ", "unhealthy ecc-uncorrectable", nil, "unhealthy ecc-uncorrectable",
		},
		"memory errors of a bertha": {
			"bertha", set("ha/errors_uncorrectable", "1"), "healthy ", "unhealthy ecc-uncorrectable",
			set("ha/errors_uncorrectable", "0"), "healthy ",
		},
		"a bertha in a reset": {
			"bertha", set("ha/state", "resetting"), "healthy offline", "unhealthy offline", set("ha/state", "ok"), "healthy ",
		},
		"a bertha that failed": {
			"bertha", set("ha/state", "failed"), "healthy bad-state", "unhealthy bad-state", set("ha/state", "ok"), "healthy ",
		},
		"a bertha in a state that nobody knows": {
			"bertha", set("ha/state", "on fire"), "healthy unreadable-attribute", "healthy unreadable-attribute", set("ha/state", "ok"), "healthy ",
		},
		"all ones": {
			"orion", func(m *simulate.Machine) error { return m.AllOnes(0, true) }, "healthy no-answer", "unhealthy no-answer",
			func(m *simulate.Machine) error { return m.AllOnes(0, false) }, "healthy ",
		},
		"without power": {
			"orion", func(m *simulate.Machine) error { return m.Power(0, "D3cold", "active") }, "unhealthy power-lost", "unhealthy power-lost",
			func(m *simulate.Machine) error { return m.Power(0, "D0", "active") }, "healthy ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := machines.Start(t, simulate.Node{Profile: c.profile, LPUs: 1})
			now := time.Hour
			w := watch.New(root, watch.Options{Scan: discovery.Options{Models: machines.Bertha()}}, func() time.Duration { return now })
			look := func(seconds int) (says string) {
				for range seconds {
					now += time.Second
					inv, err := w.Scan(t.Context())
					machines.Must(t, err)
					says = string(inv.LPUs[0].Health) + " " + machines.Sorted(inv.LPUs[0].Reasons)
				}
				return says
			}
			before := look(1)
			machines.Must(t, c.change(m))
			at, after := look(1), look(40)
			if c.undo != nil {
				machines.Must(t, c.undo(m))
			}
			if afterwards := look(40); before != "healthy " || at != c.at || after != c.after || afterwards != c.afterwards {
				t.Errorf("first %q\nthen %q, want %q\n40 s later %q, want %q\nafterwards %q, want %q",
					before, at, c.at, after, c.after, afterwards, c.afterwards)
			}
		})
	}
}
