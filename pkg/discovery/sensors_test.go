package discovery_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// sorted are the ids of findings, in the order of the alphabet.
func sorted(list finding.List) string {
	all := ids(list)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// bertha are the models with the ids of simulated Bertha cards.
func bertha() []discovery.Model {
	return discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{
		{Name: "bertha", Match: []discovery.Match{{Vendor: "20fb", Device: "0010"}}},
	})
}

// TestSensors are read in every form.
func TestSensors(t *testing.T) {
	watts, none, yes := 38.5, uint64(0), true
	for profile, want := range map[string]*health.Sensors{
		"orion": {
			Loaded: true, Calibrated: &yes, ECC: &none, Watts: &watts,
			Temperatures: []health.Temperature{{Label: "FPGA TEMP", Celsius: 41, Critical: 97}, {Label: "HBM TEMP", Celsius: 44, Critical: 97}},
		},
		"bertha": {
			ECC: &none, Watts: &watts,
			Temperatures: []health.Temperature{{Label: "LPU", Celsius: 41, Critical: 97}, {Label: "HBM", Celsius: 44, Critical: 97}},
		},
		"lpu": {},
	} {
		_, root := machine(t, simulate.Node{Profile: profile, LPUs: 1})
		models := bertha()
		if profile == "lpu" {
			models = nil
		}
		l := scan(t, root, discovery.Options{Models: models}).LPUs[0]
		if diff := cmp.Diff(want, l.Reading.Sensors); diff != "" || l.Health != discovery.Healthy || len(l.Reasons) > 0 {
			t.Errorf("%s: %s %v\n%s", profile, l.Health, l.Reasons, diff)
		}
		if diff := cmp.Diff(want.Temperatures, l.Temperatures); diff != "" || (l.Watts == nil) != (want.Watts == nil) {
			t.Errorf("%s: %v W\n%s", profile, l.Watts, diff)
		}
	}
}

// TestSeveralSensors: errors of all memories add up, sensors are in the order of their numbers and have names, also with two chips; and
// what is wrong has a remedy with the address of the card.
func TestSeveralSensors(t *testing.T) {
	faults := []simulate.Fault{{Name: "ecc", Index: 0}, {Name: "firewall", Index: 0}}
	m, root := machine(t, simulate.Node{Profile: "orion", LPUs: 1, Faults: faults})
	for name, text := range map[string]string{
		"mig.u.99/ecc_ue_cnt": "4", "firewall.u.99/status": "0",
		"hwmon/hwmon0/temp10_input": "-1500", "hwmon/hwmon0/in0_input": "900", "hwmon/hwmon0/power2_input": "7",
		"hwmon/hwmon1/temp1_input": "30000", "hwmon/hwmon1/power1_input": "9",
	} {
		file := filepath.Join(root, m.Card(0).Dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o644))
	}
	l := scan(t, root, discovery.Options{}).LPUs[0]
	text := fmt.Sprintf("%d errors, %.1f W", *l.Reading.Sensors.ECC, *l.Watts)
	for _, sensor := range l.Temperatures {
		text += fmt.Sprintf(", %s %.1f", sensor.Label, sensor.Celsius)
	}
	if want := "5 errors, 38.5 W, FPGA TEMP 41.0, HBM TEMP 44.0, temp10 -1.5, temp1 30.0"; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if sorted(l.Reasons) != "ecc-uncorrectable firewall" || l.Reasons.FirstError().Remedy != "xbutil reset --device 0000:43:00.1" {
		t.Errorf("%+v", l.Reasons)
	}
}

// TestSensorsOfACardThatCannotAnswer are not read, because such a read waits in the driver, and with it an unbind. Nor is what else
// the driver asks the card for.
func TestSensorsOfACardThatCannotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		profile string
		change  func(m *simulate.Machine) error
		want    string // reasons
	}{
		"offline":             {"orion", func(m *simulate.Machine) error { return m.Set(0, "dev_offline", "1") }, "offline"},
		"offline by an error": {"orion", func(m *simulate.Machine) error { return m.Set(0, "dev_offline", "-5") }, "offline"},
		"not ready":           {"orion", func(m *simulate.Machine) error { return m.Set(0, "ready", "0x0") }, "not-ready"},
		"asleep":              {"orion", func(m *simulate.Machine) error { return m.Power(0, "D3hot", "suspended") }, "asleep"},
		"all ones":            {"orion", func(m *simulate.Machine) error { return m.AllOnes(0, true) }, "no-answer"},
		"without power":       {"orion", func(m *simulate.Machine) error { return m.Power(0, "D3cold", "active") }, "power-lost"},
		"without a driver":    {"orion", func(m *simulate.Machine) error { return m.Unbind(0) }, "no-driver"},
		"resetting":           {"bertha", func(m *simulate.Machine) error { return m.Set(0, "ha/state", "resetting") }, "offline"},
		"asleep, a bertha":    {"bertha", func(m *simulate.Machine) error { return m.Power(0, "D3hot", "suspended") }, "asleep"},
		"all ones by config": {"orion", func(m *simulate.Machine) error {
			return errors.Join(m.AllOnes(0, true), m.Hide(0, "current_link_width"))
		}, "no-answer unreadable-attribute"},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := machine(t, simulate.Node{Profile: c.profile, LPUs: 1})
			if c.profile == "orion" && !strings.HasSuffix(name, "config") { // which is read last
				must(t, m.Set(0, "device_bad_state", "1"), m.Set(0, "host_mem_size", "0"))
			}
			must(t, c.change(m))
			l := scan(t, root, discovery.Options{Models: bertha()}).LPUs[0]
			if l.Reading.Sensors != nil {
				t.Errorf("the sensors were read: %+v", l.Reading.Sensors)
			}
			if got := sorted(l.Reasons); got != c.want {
				t.Errorf("reasons %s, want %s", got, c.want)
			}
		})
	}
}

// TestOddSensors: what is absent, empty or not a number is no fault of the card, and a warning at most.
func TestOddSensors(t *testing.T) {
	m, root := machine(t, simulate.Node{Profile: "orion", LPUs: 1})
	for _, name := range []string{
		"device_bad_state", "host_mem_size", "xclbinuuid", "mig_calibration", "firewall.u/status", "mig.u/ecc_ue_cnt",
		"hwmon/temp1_input", "hwmon/temp1_crit", "hwmon/temp1_label", "hwmon/power1_input",
	} {
		for _, text := range []string{"", "none", "-", "99999999999999999999", "1\n2", "\x01"} {
			must(t, m.Set(0, name, text))
			l := scan(t, root, discovery.Options{}).LPUs[0]
			if got := sorted(l.Reasons); got != "" && got != "unreadable-attribute" || l.Health != discovery.Healthy || text == "" && got != "" {
				t.Errorf("%s is %q: %s, reasons %v", name, text, l.Health, l.Reasons)
			}
		}
		owner, attribute := filepath.Split(name)
		pattern := map[string]string{"": "", "hwmon/": "hwmon/*"}[owner]
		if strings.HasSuffix(owner, ".u/") {
			pattern = strings.TrimSuffix(owner, "/") + ".*"
		}
		file, err := filepath.Glob(filepath.Join(root, m.Card(0).Dir, pattern, attribute))
		if err != nil || len(file) != 1 {
			t.Fatal(name, file, err)
		}
		must(t, os.Remove(file[0]))
		if l := scan(t, root, discovery.Options{}).LPUs[0]; len(l.Reasons) > 0 {
			t.Errorf("without %s: reasons %v", name, l.Reasons)
		}
	}
}

// TestSensorsAreReadSeldom: a watcher reads them every 10 s, and at each scan while they show a fault, so that hysteresis counts
// readings and not copies of one. What it tells in between are the last values, with their warnings.
func TestSensorsAreReadSeldom(t *testing.T) {
	m, root := machine(t, simulate.Node{Profile: "orion", LPUs: 2})
	now := time.Hour
	w := discovery.NewWatcher(root, discovery.Options{}, func() time.Duration { return now })
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
			must(t, step.change())
		}
		now += step.wait
		inv, err := w.Scan(t.Context())
		must(t, err)
		l := inv.LPUs[0]
		got := string(l.Health) + " -"
		if len(l.Temperatures) > 0 {
			got = fmt.Sprintf("%s %.0f", l.Health, l.Temperatures[0].Celsius)
		}
		if reasons := sorted(l.Reasons); reasons != "" {
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
			m, root := machine(t, simulate.Node{Profile: c.profile, LPUs: 1})
			now := time.Hour
			w := discovery.NewWatcher(root, discovery.Options{Models: bertha()}, func() time.Duration { return now })
			look := func(seconds int) (says string) {
				for range seconds {
					now += time.Second
					inv, err := w.Scan(t.Context())
					must(t, err)
					says = string(inv.LPUs[0].Health) + " " + sorted(inv.LPUs[0].Reasons)
				}
				return says
			}
			before := look(1)
			must(t, c.change(m))
			at, after := look(1), look(40)
			if c.undo != nil {
				must(t, c.undo(m))
			}
			if afterwards := look(40); before != "healthy " || at != c.at || after != c.after || afterwards != c.afterwards {
				t.Errorf("first %q\nthen %q, want %q\n40 s later %q, want %q\nafterwards %q, want %q",
					before, at, c.at, after, c.after, afterwards, c.afterwards)
			}
		})
	}
}

// TestResetBehindTheDriver: a card without a link width is asked for its command register, and so a reset shows. Binding the driver again
// mends it.
func TestResetBehindTheDriver(t *testing.T) {
	m, root := machine(t, simulate.Node{Profile: "orion", LPUs: 1})
	for _, step := range []struct {
		change func() error
		want   string
	}{
		{func() error { return m.Hide(0, "current_link_width") }, "healthy unreadable-attribute"},
		{func() error { return m.ResetBehindDriver(0) }, "unhealthy reset-behind-driver unreadable-attribute"},
		{func() error { return errors.Join(m.Unbind(0), m.Bind(0)) }, "healthy unreadable-attribute"},
	} {
		must(t, step.change())
		l := scan(t, root, discovery.Options{}).LPUs[0]
		if got := string(l.Health) + " " + sorted(l.Reasons); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}
