package discovery_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/machines"
)

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
		_, root := machines.Start(t, simulate.Node{Profile: profile, LPUs: 1})
		models := machines.Bertha()
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
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 1, Faults: faults})
	for name, text := range map[string]string{
		"mig.u.99/ecc_ue_cnt": "4", "firewall.u.99/status": "0",
		"hwmon/hwmon0/temp10_input": "-1500", "hwmon/hwmon0/in0_input": "900", "hwmon/hwmon0/power2_input": "7",
		"hwmon/hwmon1/temp1_input": "30000", "hwmon/hwmon1/power1_input": "9",
	} {
		file := filepath.Join(root, m.Card(0).Dir, name)
		machines.Must(t, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o644))
	}
	l := scan(t, root, discovery.Options{}).LPUs[0]
	text := fmt.Sprintf("%d errors, %.1f W", *l.Reading.Sensors.ECC, *l.Watts)
	for _, sensor := range l.Temperatures {
		text += fmt.Sprintf(", %s %.1f", sensor.Label, sensor.Celsius)
	}
	if want := "5 errors, 38.5 W, FPGA TEMP 41.0, HBM TEMP 44.0, temp10 -1.5, temp1 30.0"; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if machines.Sorted(l.Reasons) != "ecc-uncorrectable firewall" || l.Reasons.FirstError().Remedy != "xbutil reset --device 0000:43:00.1" {
		t.Errorf("%+v", l.Reasons)
	}
}

// TestLimits: the limit of a sensor is its critical value or, where there is none, its maximum.
func TestLimits(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 1})
	files, err := filepath.Glob(filepath.Join(root, m.Card(0).Dir, "hwmon/hwmon*"))
	machines.Must(t, err)
	write := func(name, text string) {
		machines.Must(t, os.WriteFile(filepath.Join(files[0], name), []byte(text+"\n"), 0o644))
	}
	limits := func() string {
		l := scan(t, root, discovery.Options{}).LPUs[0]
		text := fmt.Sprint(l.Temperatures[0].Limit(), " ", l.Temperatures[1].Limit())
		if l.LimitWatts != nil {
			text += fmt.Sprintf(" %.1f", *l.LimitWatts)
		}
		return text
	}
	for _, c := range []struct{ name, text, want string }{
		{"temp1_max", "90000", "97 97"},
		{"temp1_crit", "", "90 97"},
		{"power1_max", "150500000", "90 97 150.5"},
		{"power1_crit", "5000000000", "90 97 5000.0"},
		{"temp2_crit", "", "90 0 5000.0"},
	} {
		write(c.name, c.text)
		if got := limits(); got != c.want {
			t.Errorf("%s is %s: %s, want %s", c.name, c.text, got, c.want)
		}
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
			m, root := machines.Start(t, simulate.Node{Profile: c.profile, LPUs: 1})
			if c.profile == "orion" && !strings.HasSuffix(name, "config") { // which is read last
				machines.Must(t, m.Set(0, "device_bad_state", "1"), m.Set(0, "host_mem_size", "0"))
			}
			machines.Must(t, c.change(m))
			l := scan(t, root, discovery.Options{Models: machines.Bertha()}).LPUs[0]
			if l.Reading.Sensors != nil {
				t.Errorf("the sensors were read: %+v", l.Reading.Sensors)
			}
			if got := machines.Sorted(l.Reasons); got != c.want {
				t.Errorf("reasons %s, want %s", got, c.want)
			}
		})
	}
}

// TestOddSensors: what is absent, empty or not a number is no fault of the card, and a warning at most.
func TestOddSensors(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 1})
	for _, name := range []string{
		"device_bad_state", "host_mem_size", "xclbinuuid", "mig_calibration", "firewall.u/status", "mig.u/ecc_ue_cnt",
		"hwmon/temp1_input", "hwmon/temp1_crit", "hwmon/temp1_label", "hwmon/power1_input",
	} {
		for _, text := range []string{"", "none", "-", "99999999999999999999", "1\n2", "\x01"} {
			machines.Must(t, m.Set(0, name, text))
			l := scan(t, root, discovery.Options{}).LPUs[0]
			got := machines.Sorted(l.Reasons)
			if got != "" && (got != "unreadable-attribute" || text == "") || l.Health != discovery.Healthy {
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
		machines.Must(t, os.Remove(file[0]))
		if l := scan(t, root, discovery.Options{}).LPUs[0]; len(l.Reasons) > 0 {
			t.Errorf("without %s: reasons %v", name, l.Reasons)
		}
	}
}

// TestResetBehindTheDriver: a card without a link width is asked for its command register, and so a reset shows. Binding the driver again
// mends it.
func TestResetBehindTheDriver(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 1})
	for _, step := range []struct {
		change func() error
		want   string
	}{
		{func() error { return m.Hide(0, "current_link_width") }, "healthy unreadable-attribute"},
		{func() error { return m.ResetBehindDriver(0) }, "unhealthy reset-behind-driver unreadable-attribute"},
		{func() error { return errors.Join(m.Unbind(0), m.Bind(0)) }, "healthy unreadable-attribute"},
	} {
		machines.Must(t, step.change())
		l := scan(t, root, discovery.Options{}).LPUs[0]
		if got := string(l.Health) + " " + machines.Sorted(l.Reasons); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}
