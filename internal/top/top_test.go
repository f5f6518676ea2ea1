package top

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// noon is when the looks of these tests are.
func noon() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// machine has n healthy LPUs on one ring, which goes 0, 2, 4, ..., 5, 3, 1.
func machine(n int) *discovery.Inventory {
	inv := &discovery.Inventory{}
	r := discovery.Ring{ID: "ring0", Closed: true, DeadLinks: [][2]string{}}
	for i := range n {
		inv.LPUs = append(inv.LPUs, discovery.LPU{
			Name: fmt.Sprint("lpu", i), Index: i, Address: pci.Address{Bus: uint8(0x43 + i)}, Model: "orion",
			Usable: true, Health: discovery.Healthy,
		})
	}
	for i := 0; i < n; i += 2 {
		r.Members = append(r.Members, fmt.Sprint("lpu", i))
	}
	for i := (n - 1) / 2 * 2; i > 0; i -= 2 {
		if i < n && i-1 > 0 || i == 2 {
			r.Members = append(r.Members, fmt.Sprint("lpu", i-1))
		}
	}
	if n > 1 && n%2 == 0 {
		r.Members = slices.Insert(r.Members, n/2, fmt.Sprint("lpu", n-1))
	}
	if n > 0 {
		inv.Rings = []discovery.Ring{r}
	}
	return inv
}

// sensors are readings of an LPU, with limits of 100 degrees and 200 watts.
func sensors(celsius, watts float64) *Readings {
	limit := 200.0
	return &Readings{
		Source: "serve", At: noon().Add(-3 * time.Second), Watts: &watts, LimitWatts: &limit,
		Temperatures: []health.Temperature{{Label: "a", Celsius: celsius - 1, Critical: 100}, {Label: "b", Celsius: celsius, Critical: 100}},
	}
}

func readingsOf(inv *discovery.Inventory) map[pci.Address]*Readings {
	all := map[pci.Address]*Readings{}
	for i := range inv.LPUs {
		all[inv.LPUs[i].Address] = sensors(float64(40+10*(i%5)), float64(100-7*(i%4)))
	}
	return all
}

func lookAt(inv *discovery.Inventory) *Look { return New(inv, readingsOf(inv), nil, noon(), time.Hour) }

// press presses keys, a word each; other words are typed.
func press(v *View, keys ...string) {
	for _, key := range keys {
		v.Press(key, key)
	}
}

// names are the LPUs in the table of a screen, in their order.
func names(screen string) string {
	var all []string
	for line := range strings.Lines(ansi.Strip(screen)) {
		if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, "lpu") && name != "lpuctl" {
			if slices.Contains(all, name) {
				break // the history
			}
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

// TestEightLPUsFit: a terminal of 80 columns and 24 rows has all of a server, its history, and the keys.
func TestEightLPUsFit(t *testing.T) {
	inv := machine(8)
	inv.Rings[0].DeadLinks = [][2]string{{"lpu2", "lpu4"}}
	v := View{Width: 80, Height: 24, Style: Style{UTF8: true, Colour: true}}
	v.Take(lookAt(inv))
	screen := v.Screen(noon())
	if got, want := names(screen), "lpu0 lpu2 lpu4 lpu6 lpu7 lpu5 lpu3 lpu1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, want := range []string{
		"8 LPUs, 8 healthy", "12:00:00", "readings: serve, 3s ago", "███▏···", " 40C", "100W", "10 MIN", "q quit", "hOlder",
		"ring0: 1 of 8 cables down: lpu2-lpu4",
	} {
		if !strings.Contains(ansi.Strip(screen), want) {
			t.Errorf("the screen lacks %q:\n%s", want, screen)
		}
	}
	if n := strings.Count(screen, "\nlpu7 "); n != 2 {
		t.Errorf("lpu7 has %d lines, in table and history:\n%s", n, screen)
	}
}

// TestEveryScreenFits: no line is wider than the terminal, and there are no more lines than it has.
func TestEveryScreenFits(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {60, 6}, {80, 10}, {80, 24}, {81, 25}, {133, 50}, {300, 100}} {
		for _, n := range []int{0, 1, 3, 8, 16} {
			for _, keys := range []string{"", "?", "/", "space", "tab", "down down down", "/ x y z", "/ l p u enter h"} {
				inv := machine(n)
				for i := range inv.LPUs {
					inv.LPUs[i].Leased = &discovery.Holder{ID: "l7", UID: 1000, User: strings.Repeat("한글", i+1)}
					inv.LPUs[i].Reasons.Add(finding.Hot, "", "", "")
				}
				v := View{Width: size[0], Height: size[1], Style: Style{UTF8: n%2 == 0, Colour: true}}
				v.Screen(noon())
				v.Take(lookAt(inv))
				v.Fault = strings.Repeat("a fault ", n)
				press(&v, strings.Fields(keys)...)
				lines := strings.Split(v.Screen(noon()), "\n")
				for _, line := range lines {
					if ansi.StringWidth(line) > size[0] {
						t.Errorf("%v, %d LPUs, %q: %d columns: %s", size, n, keys, ansi.StringWidth(line), line)
					}
				}
				if len(lines) > size[1] {
					t.Errorf("%v, %d LPUs, %q: %d lines", size, n, keys, len(lines))
				}
			}
		}
	}
}

// TestMoreThanFits: what does not fit is reached by keys.
func TestMoreThanFits(t *testing.T) {
	v := View{Width: 80, Height: 12}
	v.Take(lookAt(machine(16)))
	press(&v, "n")
	for _, c := range []struct{ keys, want string }{
		{"", "lpu0 lpu1 lpu2 lpu3 lpu4 lpu5 lpu6 lpu7"},
		{"down down", "lpu2 lpu3 lpu4 lpu5 lpu6 lpu7 lpu8 lpu9"},
		{"up", "lpu1 lpu2 lpu3 lpu4 lpu5 lpu6 lpu7 lpu8"},
		{strings.Repeat("j ", 30), "lpu8 lpu9 lpu10 lpu11 lpu12 lpu13 lpu14 lpu15"},
		{"k", "lpu7 lpu8 lpu9 lpu10 lpu11 lpu12 lpu13 lpu14"},
		{"n", "lpu0 lpu1 lpu2 lpu3 lpu4 lpu5 lpu6 lpu7"},
	} {
		press(&v, strings.Fields(c.keys)...)
		if got := names(v.Screen(noon())); got != c.want {
			t.Errorf("%q: %s, want %s", c.keys, got, c.want)
		}
	}
	if strings.Contains(v.Screen(noon()), "10 MIN") {
		t.Error("table and history are shown")
	}
	press(&v, "tab")
	if !strings.Contains(v.Screen(noon()), "10 MIN") {
		t.Error("tab does not show the history")
	}
}

// TestOrders: each key sorts, the worst, hottest and hungriest first, and what is not known last.
func TestOrders(t *testing.T) {
	inv := machine(6) // 0 2 4 5 3 1
	inv.LPUs[1].Health, inv.LPUs[1].Usable = discovery.Unhealthy, false
	inv.LPUs[3].Health = discovery.HealthUnknown
	inv.LPUs[4].Reasons.Add(finding.LinkDegraded, "", "", "")
	inv.LPUs[5].Leased = &discovery.Holder{ID: "l7", User: "bob", UID: 7}
	inv.LPUs[0].Users = []discovery.User{{PID: 12, Command: "vllm"}}
	readings := readingsOf(inv) // 40 50 60 70 80 40 degrees, 100 93 86 79 100 93 watts
	delete(readings, inv.LPUs[4].Address)
	v := View{Width: 80, Height: 24}
	v.Take(New(inv, readings, nil, noon(), time.Hour))
	for key, want := range map[string]string{
		"r": "lpu0 lpu2 lpu4 lpu5 lpu3 lpu1",
		"n": "lpu0 lpu1 lpu2 lpu3 lpu4 lpu5",
		"h": "lpu1 lpu3 lpu4 lpu0 lpu2 lpu5",
		"t": "lpu3 lpu2 lpu1 lpu0 lpu5 lpu4",
		"p": "lpu0 lpu5 lpu1 lpu2 lpu3 lpu4",
		"o": "lpu5 lpu0 lpu2 lpu4 lpu3 lpu1",
	} {
		press(&v, key)
		if got := names(v.Screen(noon())); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// TestFilter: only LPUs are shown that have the text in a cell, while it is typed and after.
func TestFilter(t *testing.T) {
	inv := machine(4)
	inv.LPUs[2].Leased = &discovery.Holder{ID: "l7", User: "Quentin", UID: 7}
	inv.LPUs[3].Health, inv.LPUs[3].Usable = discovery.Unhealthy, false
	v := View{Width: 80, Height: 24}
	v.Take(lookAt(inv))
	for _, c := range []struct{ keys, want, filter string }{
		{"/ q u", "lpu2", "qu"}, // q does not quit
		{"backspace backspace backspace U N H", "lpu3", "unh"},
		{"enter", "lpu3", "unh"},
		{"esc", "lpu0 lpu2 lpu3 lpu1", ""},
		{"/ l p u 1 enter", "lpu1", "lpu1"},
		{"/ 9", "", "lpu19"},
		{"esc", "lpu0 lpu2 lpu3 lpu1", ""},
	} {
		press(&v, strings.Fields(c.keys)...)
		if got := names(v.Screen(noon())); got != c.want || v.Filter != c.filter {
			t.Errorf("%q: %q by %q, want %q by %q", c.keys, got, v.Filter, c.want, c.filter)
		}
	}
	if v.Press("q", "q"); !v.Press("q", "q") || !v.Press("ctrl+c", "") {
		t.Error("q does not quit")
	}
	press(&v, "?")
	if !strings.Contains(v.Screen(noon()), "Any key goes back.") {
		t.Error("? shows no help")
	}
	for _, line := range helpLines() {
		if ansi.StringWidth(line) > 80 {
			t.Errorf("too wide: %s", line)
		}
	}
	if v.Press("x", "x"); names(v.Screen(noon())) == "" {
		t.Error("the help does not go")
	}
}

// TestPause: the screen stays as it is, and nothing is lost meanwhile.
func TestPause(t *testing.T) {
	inv := machine(2)
	v := View{Width: 80, Height: 24}
	v.Take(lookAt(inv))
	press(&v, "space")
	before := v.Screen(noon())
	readings := readingsOf(inv)
	readings[inv.LPUs[0].Address] = sensors(95, 190)
	v.Take(New(inv, readings, nil, noon().Add(time.Minute), time.Hour))
	if after := v.Screen(noon().Add(time.Minute)); after != before || !strings.Contains(after, "PAUSED") {
		t.Errorf("the screen changes:\n%s\n%s", before, after)
	}
	press(&v, "space")
	if after := v.Screen(noon()); !strings.Contains(after, " 95C") || !strings.Contains(after, "40-95C") {
		t.Errorf("it does not go on:\n%s", after)
	}
}

// TestBars are full at the limit, and there is none without a limit.
func TestBars(t *testing.T) {
	none, half, over := 0.0, 50.0, 130.0
	for _, c := range []struct {
		value *float64
		limit float64
		style Style
		want  string
	}{
		{&half, 100, Style{UTF8: true}, "████····  50C"},
		{&half, 100, Style{}, "####....  50C"},
		{&over, 100, Style{UTF8: true}, "████████ 130C"},
		{&over, 100, Style{}, "######## 130C"},
		{&none, 100, Style{}, "........   0C"},
		{&half, 0, Style{UTF8: true}, "          50C"},
		{nil, 100, Style{UTF8: true}, "            -"},
		{&over, 100, Style{Colour: true}, "\x1b[31m########\x1b[m 130C"},
		{&half, 51, Style{Colour: true}, "\x1b[33m########\x1b[m  50C"},
		{&half, 53, Style{UTF8: true}, "███████▌  50C"},
	} {
		v := View{Style: c.style}
		if got := v.gauge(c.value, c.limit, "C"); got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

// TestStyle: a terminal that has ASCII only gets no other character.
func TestStyle(t *testing.T) {
	inv := machine(8)
	for _, keys := range []string{"", "?", "/", "space"} {
		v := View{Width: 80, Height: 24}
		v.Take(lookAt(inv))
		press(&v, strings.Fields(keys)...)
		if screen := v.Screen(noon()); strings.ContainsFunc(screen, func(r rune) bool { return r > 126 || r < 32 && r != '\n' }) {
			t.Errorf("more than ASCII without colours: %q", screen)
		}
	}
}

// TestUnknownIsNeverZero: what is not known is a dash on the screen, and absent from the document.
func TestUnknownIsNeverZero(t *testing.T) {
	inv := machine(1)
	look := New(inv, nil, nil, noon(), time.Hour)
	v := View{}
	if got, want := strings.Split(v.Plain(look, noon()), "\n")[3],
		"lpu0              -             - -       healthy      -                       -"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	v = View{Width: 80, Height: 24}
	v.Take(look)
	if screen := v.Screen(noon()); strings.Contains(screen, " 0C") || strings.Contains(screen, " 0W") ||
		!strings.Contains(screen, "readings: -") {
		t.Error(screen)
	}
	text, err := json.Marshal(look)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"readings", "watts", "temperatures", "link", "holder", "since", "node"} {
		if strings.Contains(string(text), `"`+key+`"`) {
			t.Errorf("%s is in %s", key, text)
		}
	}
	for _, part := range []string{`"kind":"Top"`, `"reasons":[]`, `"problems":[]`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	empty, err := json.Marshal(New(&discovery.Inventory{}, nil, nil, noon(), time.Hour))
	if err != nil || !strings.Contains(string(empty), `"lpus":[],"rings":[],"problems":[]`) {
		t.Errorf("%s %v", empty, err)
	}
}

// TestHolders: the arbiter's word comes before the kubelet's, and that before what is open.
func TestHolders(t *testing.T) {
	container := strings.Repeat("0123456789abcdef", 4)
	open := []discovery.User{
		{PID: 30, Command: "late", Started: 50 * time.Minute}, {PID: 20, Command: "vllm", Started: 30 * time.Minute},
	}
	inContainer := []discovery.User{{PID: 1, Container: container, Runtime: "podman", Started: time.Hour - time.Second}}
	lease := &discovery.Holder{ID: "l7", User: "bob", UID: 1000, Since: noon().Add(-26 * time.Hour)}
	for _, c := range []struct {
		use                    discovery.LPU
		pod, kind, text, since string
	}{
		{use: discovery.LPU{}, text: "", since: "-"},
		{use: discovery.LPU{Use: discovery.Use{UsersHidden: true}}, text: "?", since: "-"},
		{use: discovery.LPU{Use: discovery.Use{Users: open}}, kind: "process", text: "vllm(20)", since: "30m"},
		{use: discovery.LPU{Use: discovery.Use{Users: open, UsersHidden: true}}, kind: "process", text: "vllm(20) ?", since: "30m"},
		{
			use:  discovery.LPU{Use: discovery.Use{Users: open}, Marks: discovery.Marks{Leased: lease}},
			kind: "lease", text: "l7 bob(1000)", since: "26h",
		},
		{
			use: discovery.LPU{Use: discovery.Use{Users: open}},
			pod: "pod ns/p, container c", kind: "pod", text: "ns/p, container c", since: "30m",
		},
		{pod: "claim ns/c", kind: "pod", text: "claim ns/c", since: "-"},
		{
			use:  discovery.LPU{Use: discovery.Use{Users: inContainer}},
			kind: "container", text: "podman 0123456789ab", since: "1s",
		},
		{use: discovery.LPU{Marks: discovery.Marks{Reserved: lease}}, kind: "reservation", text: "l7 for bob(1000)", since: "26h"},
		{use: discovery.LPU{Marks: discovery.Marks{KeptBack: "a hook has failed"}}, kind: "keptBack", text: "kept back", since: "-"},
	} {
		inv := machine(1)
		l := &inv.LPUs[0]
		l.Use, l.Marks = c.use.Use, c.use.Marks
		pods := map[pci.Address]string{}
		if c.pod != "" {
			pods[l.Address] = c.pod
		}
		look := New(inv, nil, pods, noon(), time.Hour)
		kind := ""
		if h := look.LPUs[0].Holder; h != nil {
			kind = h.Kind
		}
		v := View{}
		line := strings.Split(v.Plain(look, noon()), "\n")[3]
		if kind != c.kind || look.LPUs[0].holder() != c.text || !strings.HasSuffix(line, " "+c.since) {
			t.Errorf("%+v: %s %q %q", c, kind, look.LPUs[0].holder(), line)
		}
	}
}

// TestWarnings are seen without colours, too.
func TestWarnings(t *testing.T) {
	inv := machine(3)
	inv.LPUs[0].Reasons.Add(finding.LinkDegraded, "", "", "")
	inv.LPUs[1].Reasons.Add(finding.NoDriver, "", "", "")
	inv.LPUs[1].Usable, inv.LPUs[1].Health = false, discovery.Unhealthy
	inv.LPUs[2].Cordoned = &health.Cordon{}
	inv.LPUs[2].Link = &discovery.Link{SpeedGTs: 8, Width: 4}
	v := View{}
	plain := v.Plain(lookAt(inv), noon())
	for _, want := range []string{"healthy !", "no driver", "healthy,cor~", " 8.0x4 "} {
		if !strings.Contains(plain, want) {
			t.Errorf("%q is not in\n%s", want, plain)
		}
	}
}

// TestHistory has ten minutes, also of a clock that jumps.
func TestHistory(t *testing.T) {
	inv := machine(1)
	var h History
	at := func(seconds int, celsius float64) []*float64 {
		readings := map[pci.Address]*Readings{inv.LPUs[0].Address: sensors(celsius, 10)}
		h.Add(New(inv, readings, nil, noon().Add(time.Duration(seconds)*time.Second), time.Hour))
		return h.of(inv.LPUs[0].Address).celsius[:]
	}
	known := func(values []*float64) (text string) {
		for _, v := range values {
			if v != nil {
				text += fmt.Sprintf("%.0f ", *v)
			}
		}
		return strings.TrimSpace(text)
	}
	at(0, 50)
	at(5, 60)
	if got := known(at(9, 55)); got != "60" {
		t.Errorf("in one step: %s", got)
	}
	if got := known(at(10, 40)); got != "60 40" {
		t.Errorf("in the next step: %s", got)
	}
	values := at(599, 70)
	if got := known(values); got != "60 40 70" || *values[0] != 60 {
		t.Errorf("after ten minutes: %s", got)
	}
	if got := (Style{}).spark(inColumns(values, 20)); got != ".                  @" {
		t.Errorf("%q", got)
	}
	if got := rangeText(values, "C"); got != "40-70C" {
		t.Error(got)
	}
	if got := known(at(600, 30)); got != "40 70 30" {
		t.Errorf("later: %s", got)
	}
	for _, seconds := range []int{-3600, 1e8} {
		if got := known(at(seconds, 20)); got != "20" {
			t.Errorf("after the clock was set by %d s: %s", seconds, got)
		}
	}
}

// TestNamesSteerNoTerminal: what others call their programs and users is shown as text.
func TestNamesSteerNoTerminal(t *testing.T) {
	inv := machine(1)
	inv.LPUs[0].Users = []discovery.User{{PID: 1, Command: "\x1b[2J\nx\ty"}}
	v := View{Width: 80, Height: 24}
	v.Take(lookAt(inv))
	press(&v, "/")
	v.Press("", "a\x1b[2Jb")
	if screen := v.Screen(noon()); strings.Contains(screen, "\x1b") || strings.Contains(screen, "\t") {
		t.Errorf("%q", screen)
	}
	press(&v, "esc")
	if screen := v.Screen(noon()); strings.Contains(screen, "\x1b") || strings.Contains(screen, "\t") || names(screen) != "lpu0" {
		t.Errorf("%q", screen)
	}
}
