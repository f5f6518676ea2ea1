package health_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/long"
)

// reading is one that a rune stands for.
func reading(r rune) (found health.Reading) {
	id := map[rune]finding.ID{
		'g': finding.Gone, 'o': finding.Offline, 'r': finding.RecoveryShell, '?': finding.ReadStalled, '1': finding.NoAnswer, 'w': finding.Hot,
	}[r]
	if id != "" {
		found.Reasons.Add(id, "", "", "")
	}
	return found
}

// TestHysteresis plays readings of one LPU, a second apart, and looks at the resulting state.
func TestHysteresis(t *testing.T) {
	for name, c := range map[string]struct{ readings, want string }{
		// h: healthy; g: gone; o: offline; r: factory image; ?: does not answer in time; 1: all ones; w: a warning.
		// want: h, u(nhealthy), ?
		"gone counts at once":                {"hhgg", "hhuu"},
		"healthy after three seconds":        {"hghhhhh", "huuuuhh"},
		"a relapse starts again":             {"hghhghhhhh", "huuuuuuuhh"},
		"one bad reading is none":            {"hrhhrh", "hhhhhh"},
		"two are":                            {"hrrr", "hhuu"},
		"a reset is not known for a while":   {"hoooo" + strings.Repeat("o", 30), "hh???" + strings.Repeat("?", 26) + "uuuu"},
		"a reset that ends":                  {"hooohhhhh", "hh?????hh"},
		"a card that does not answer":        {"h???" + strings.Repeat("?", 30), "hh??" + strings.Repeat("?", 27) + "uuu"},
		"all ones for good":                  {"h11111111", "hh????uuu"},
		"all ones after it was offline":      {"hooo1111111", "hh???????uu"},
		"sick from the start":                {"rrhhhhh", "uuuuuhh"},
		"all ones, if it answers in time":    {"h1?1?1?1?1", "hh?????uuu"},
		"not known from the start":           {"?hhhhh", "????hh"},
		"offline after it was found missing": {"hgooh", "huuuu"},
		"a warning is none":                  {"hwwww", "hhhhh"},
	} {
		j, now, got := health.NewJudge(health.DefaultPolicy(), nil), time.Hour, ""
		for _, r := range c.readings {
			state := j.See("a", "lpu0", reading(r), now).State
			got += map[health.State]string{health.Healthy: "h", health.Unhealthy: "u", health.Unknown: "?"}[state]
			now += time.Second
		}
		if got != c.want {
			t.Errorf("%s: of  %s\n  got %s\n want %s", name, c.readings, got, c.want)
		}
	}
}

// TestAReadingThatIsRepeatedAtOnce, because a scan is repeated to write the CDI spec of it, is no second reading.
func TestAReadingThatIsRepeatedAtOnce(t *testing.T) {
	j, now := health.NewJudge(health.DefaultPolicy(), nil), time.Hour
	for _, step := range []struct {
		after   time.Duration
		reading rune
		want    health.State
	}{
		{0, 'h', health.Healthy},
		{time.Second, 'r', health.Healthy},
		{40 * time.Millisecond, 'r', health.Healthy},
		{20 * time.Millisecond, 'r', health.Unhealthy}, // the second one
	} {
		now += step.after
		if got := j.See("a", "lpu0", reading(step.reading), now).State; got != step.want {
			t.Errorf("%c after %v: %s, want %s", step.reading, step.after, got, step.want)
		}
	}
}

// history plays steps a second apart: readings, and events before them.
type step struct {
	event health.Event
	read  func(r *health.Reading)
	want  string // the ids of the reasons after it
}

func play(t *testing.T, steps []step) {
	t.Helper()
	j, now := health.NewJudge(health.DefaultPolicy(), nil), time.Hour
	for i, s := range steps {
		now += time.Second
		r := health.Reading{
			Driver: "xocl", PowerState: "D0", RuntimeStatus: "active", Enabled: 1,
			Link: health.Link{SpeedGTs: 8, Width: 16}, MaxLink: health.Link{SpeedGTs: 8, Width: 16},
		}
		if s.read != nil {
			s.read(&r)
		}
		if s.event != "" {
			j.Tell("a", s.event, now)
		}
		policy := health.DefaultPolicy()
		r.Reasons = append(r.Reasons, r.Findings("lpu0", &policy)...)
		if got := ids(j.See("a", "lpu0", r, now).Reasons); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
}

func ids(l finding.List) string {
	var all []string
	for _, f := range l {
		all = append(all, string(f.ID))
	}
	return strings.Join(slices.DeleteFunc(all, func(id string) bool { return id == "recovering" }), " ")
}

// TestPower: a card without power stays so until it is in D0, or until a driver was bound again and the card answers. The kernel goes
// on calling it D3cold then, and all the same a second loss is seen.
func TestPower(t *testing.T) {
	lost := func(r *health.Reading) { r.PowerState = "D3cold" }
	dead := func(r *health.Reading) {
		*r = health.Reading{PowerState: "D3cold", RuntimeStatus: "active", AllOnes: true}
	}
	play(t, []step{
		{}, {"", dead, "power-lost"}, {"", lost, "power-lost"}, {},
		{"", dead, "power-lost"}, {health.Bound, dead, "power-lost"}, {"", lost, "power-lost"},
		{health.Bound, lost, ""}, {"", lost, ""},
		{"", dead, "power-lost"}, {"", lost, "power-lost"},
		{"", func(r *health.Reading) { r.PowerState = "error" }, "power-lost"},
		{"", func(r *health.Reading) { r.PowerState, r.RuntimeStatus = "D3cold", "suspended" }, "asleep"},
	})
}

// TestRecovery: a recovery that is under way may end well, which is a warning for a while. One that failed stays until a driver is
// bound again.
func TestRecovery(t *testing.T) {
	play(t, []step{
		{}, {health.RecoveryBegan, nil, "in-recovery"}, {"", nil, "in-recovery"},
		{health.RecoveryEnded, nil, "recovered"}, {"", nil, "recovered"},
		{health.RecoveryBegan, nil, "in-recovery recovered"}, {health.RecoveryFailed, nil, "recovery-failed recovered"},
		{"", nil, "recovery-failed recovered"}, {health.Bound, nil, "recovered"},
	})
	j, policy := health.NewJudge(health.DefaultPolicy(), nil), health.DefaultPolicy()
	j.See("a", "lpu0", health.Reading{}, time.Hour)
	j.Tell("a", health.RecoveryEnded, time.Hour)
	j.Tell("b", health.RecoveryFailed, time.Hour) // of a function that was never read
	if got := ids(j.See("a", "lpu0", health.Reading{}, time.Hour+policy.CounterQuiet-1).Reasons); got != "recovered" {
		t.Errorf("before it is forgotten: %q", got)
	}
	if got := j.See("a", "lpu0", health.Reading{}, time.Hour+policy.CounterQuiet); len(got.Reasons) != 0 || got.State != health.Healthy {
		t.Errorf("when it is forgotten: %+v", got)
	}
	if got := j.See("b", "lpu1", health.Reading{}, time.Hour); got.State != health.Healthy {
		t.Errorf("the first reading of another: %+v", got)
	}
}

// TestRebound: who used a healthy card may have lost it when its driver was bound again between two looks. Of a card that was not
// healthy nobody needs to be told.
func TestRebound(t *testing.T) {
	noDriver := func(r *health.Reading) { r.Reasons.Add(finding.NoDriver, "", "", "") }
	play(t, []step{{}, {health.Renumbered, nil, "rebound"}, {"", nil, "rebound"}})
	play(t, []step{{}, {health.Unbound, nil, "rebound"}})
	play(t, []step{{"", noDriver, "no-driver"}, {health.Bound, nil, ""}})
}

// TestCounters: what is counted before the first reading is the baseline, and so is a counter that fell. Growth is forgotten after a while.
func TestCounters(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []uint64 // a minute apart
		want   string   // after each: F(atal), n(on-fatal), c(orrectable) or -
		field  func(r *health.Reading, n *uint64)
	}{
		{"fatal", []uint64{5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6}, "--FFFFFFFFFF-", func(r *health.Reading, n *uint64) { r.AERFatal = n }},
		{"a counter that falls", []uint64{5, 6, 0, 0, 1}, "-F--F", func(r *health.Reading, n *uint64) { r.AERFatal = n }},
		{"not fatal", []uint64{0, 1, 1}, "-nn", func(r *health.Reading, n *uint64) { r.AERNonFatal = n }},
		{"few that were corrected", []uint64{0, 100}, "--", func(r *health.Reading, n *uint64) { r.AERCorrectable = n }},
		{"many before", []uint64{1000, 1001}, "--", func(r *health.Reading, n *uint64) { r.AERCorrectable = n }},
		{"many", []uint64{0, 50, 101, 101}, "--cc", func(r *health.Reading, n *uint64) { r.AERCorrectable = n }},
		{"many, but slowly", []uint64{0, 12, 24, 36, 48, 60, 72, 84, 96, 98, 100, 110, 120}, "-------------",
			func(r *health.Reading, n *uint64) { r.AERCorrectable = n }},
	} {
		j, now, got := health.NewJudge(health.DefaultPolicy(), nil), time.Hour, ""
		for _, value := range c.values {
			var r health.Reading
			c.field(&r, &value)
			verdict := j.See("a", "lpu0", r, now)
			letter := map[string]string{"aer-fatal": "F", "aer-nonfatal": "n", "aer-correctable": "c", "": "-"}[ids(verdict.Reasons)]
			if letter == "F" && verdict.State != health.Unhealthy {
				t.Errorf("%s: %s with %s", c.name, verdict.State, letter)
			}
			got += letter
			now += time.Minute
			j = health.NewJudge(health.DefaultPolicy(), j.Records()) // a restart forgets nothing
		}
		if got != c.want {
			t.Errorf("%s: %v\n  got %s\n want %s", c.name, c.values, got, c.want)
		}
	}
}

// TestLink: a link is degraded if it is less than it was, and less than card and port can.
func TestLink(t *testing.T) {
	with := func(speed float64, width, most int) func(r *health.Reading) {
		return func(r *health.Reading) {
			r.Link, r.MaxLink = health.Link{SpeedGTs: speed, Width: width}, health.Link{SpeedGTs: 8, Width: most}
		}
	}
	play(t, []step{
		{"", with(8, 4, 16), "link-degraded"}, // it was never better, but the slot has more
		{"", with(2.5, 4, 16), "link-degraded"},
		{"", with(8, 16, 16), ""},
		{"", with(8, 4, 16), "link-degraded"},
		{"", with(0, 0, 16), ""}, // no measure
		{"", with(8, 4, 4), ""},  // the port says that it can no more
		{"", with(8, 4, 0), "link-degraded"},
	})
	policy := health.DefaultPolicy()
	policy.DegradedLink = health.DegradedUnhealthy
	j := health.NewJudge(policy, nil)
	for i, want := range []health.State{health.Healthy, health.Healthy, health.Unhealthy} {
		r := health.Reading{Link: health.Link{SpeedGTs: 8, Width: 16 >> min(i, 1)}}
		if got := j.See("a", "lpu0", r, time.Hour+time.Duration(i)*time.Second); got.State != want {
			t.Errorf("step %d: %+v, want %s", i, got, want)
		}
	}
}

// TestReadings: what a reading shows by itself.
func TestReadings(t *testing.T) {
	command, off, zero, three, no := uint16(6), uint16(4), uint64(0), uint64(3), false
	for want, r := range map[string]health.Reading{
		"link-degraded":       {Link: health.Link{Width: 4}, MaxLink: health.Link{Width: 16}},
		"aer-fatal":           {AERFatal: &three, AERNonFatal: &zero, AERCorrectable: &three},
		"aer-nonfatal":        {AERNonFatal: &three},
		"ecc-uncorrectable":   {Sensors: &health.Sensors{ECC: &three}},
		"":                    {Command: &command, Driver: "xocl", Enabled: 1, PowerState: "D0", RuntimeStatus: "active"},
		"reset-behind-driver": {Command: &off, Driver: "xocl", Enabled: 1},
		"no-answer":           {AllOnes: true, Command: &off, Driver: "xocl", Enabled: 1},
		"asleep":              {RuntimeStatus: "suspended", PowerState: "D3cold"},
		"power-lost":          {RuntimeStatus: "active", PowerState: "error"},
		"bad-state":           {BadState: true},
		"firewall":            {Sensors: &health.Sensors{Firewall: 2}},
		"not-calibrated":      {Sensors: &health.Sensors{Calibrated: &no, Loaded: true}},
		"no-host-memory":      {HostMemory: &zero, Sensors: &health.Sensors{Calibrated: &no}},
		"hot hot": {Sensors: &health.Sensors{Temperatures: []health.Temperature{
			{Celsius: 90, Critical: 90}, {Celsius: 89, Critical: 90}, {Celsius: 200}, {Celsius: 101, Critical: 100},
		}}},
	} {
		policy := health.DefaultPolicy()
		if got := ids(r.Findings("lpu0", &policy)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, r := range []health.Reading{
		{Command: &off, Enabled: 1}, {Command: &off, Driver: "xocl"}, // nobody has enabled it
		{Link: health.Link{SpeedGTs: 2.5, Width: 8}, MaxLink: health.Link{SpeedGTs: 8, Width: 8}}, // which is how some boards save power
		{Link: health.Link{Width: 8}}, {MaxLink: health.Link{Width: 16}}, {AERFatal: &zero, Sensors: &health.Sensors{ECC: &zero}},
	} {
		policy := health.DefaultPolicy()
		if got := r.Findings("lpu0", &policy); len(got) != 0 {
			t.Errorf("%+v: %v", r, got)
		}
	}
	limit := health.DefaultPolicy()
	limit.MaxCelsius = 85
	hot := health.Reading{Sensors: &health.Sensors{Temperatures: []health.Temperature{{Celsius: 85}}}}
	if got := hot.Findings("lpu0", &limit); len(got) != 1 || got[0].Severity != finding.Error {
		t.Errorf("over the limit of the config: %v", got)
	}
}

// TestTotals: what a counter shows says nothing of when that was, and so is a warning with the
// number. What it grows by under a judge takes the place of it.
func TestTotals(t *testing.T) {
	policy := health.DefaultPolicy()
	j := health.NewJudge(policy, nil)
	for i, want := range []string{
		"warning: lpu0: it has counted 1 fatal error on the PCI bus [aer-fatal]",
		"error: lpu0: it had 2 fatal errors on the PCI bus [aer-fatal]",
		"warning: lpu0: it has counted 3 fatal errors on the PCI bus [aer-fatal]",
	} {
		now, count := time.Hour+time.Duration(i)*policy.CounterQuiet/2, uint64(min(1+2*i, 3))
		if i == 2 {
			now += policy.CounterQuiet
		}
		r := health.Reading{AERFatal: &count}
		r.Reasons = r.Findings("lpu0", &policy)
		if got := j.See("a", "lpu0", r, now); len(got.Reasons) == 0 || got.Reasons[0].String() != want {
			t.Errorf("%d: %v, want %s", i, got.Reasons, want)
		}
	}
}

// TestAnotherDevice at the address of an LPU has baselines of its own, and still has to stay healthy for a moment.
func TestAnotherDevice(t *testing.T) {
	j := health.NewJudge(health.DefaultPolicy(), nil)
	many, few := uint64(9), uint64(10)
	j.See("a", "lpu0", health.Reading{Device: 1, AERFatal: &many}, time.Hour)
	j.Tell("a", health.RecoveryFailed, time.Hour)
	var gone health.Reading
	gone.Reasons.Add(finding.Gone, "lpu0", "", "")
	if got := j.See("a", "lpu0", gone, time.Hour+time.Second); got.State != health.Unhealthy {
		t.Errorf("gone: %+v", got)
	}
	got := j.See("a", "lpu0", health.Reading{Device: 2, AERFatal: &few}, time.Hour+2*time.Second)
	if got.State != health.Unhealthy || ids(got.Reasons) != "" {
		t.Errorf("another: %+v", got)
	}
}

// TestWhoUsedTheDeviceBefore has lost it when another one comes in its place, whether an event told of it or not.
func TestWhoUsedTheDeviceBefore(t *testing.T) {
	for name, c := range map[string]struct {
		event health.Event
		seen  bool // that it was gone in between
		want  string
	}{
		"no event":                    {"", false, "rebound"},
		"its removal":                 {health.Unbound, false, "rebound"},
		"its removal, and it is seen": {health.Unbound, true, "rebound"},
		"no event, and it is seen":    {"", true, ""}, // whoever looked knew that it was gone
	} {
		j := health.NewJudge(health.DefaultPolicy(), nil)
		j.See("a", "lpu0", health.Reading{Device: 1}, time.Hour)
		if c.event != "" {
			j.Tell("a", c.event, time.Hour)
		}
		if c.seen {
			j.See("a", "lpu0", reading('g'), time.Hour+time.Second)
		}
		if got := j.See("a", "lpu0", health.Reading{Device: 2}, time.Hour+2*time.Second); ids(got.Reasons) != c.want {
			t.Errorf("%s: %q, want %q", name, ids(got.Reasons), c.want)
		}
	}
}

// TestABindThatNoEventTold ends what lasts until a driver is bound, if the card was seen without a driver.
func TestABindThatNoEventTold(t *testing.T) {
	with := func(driver, power string) func(r *health.Reading) {
		return func(r *health.Reading) { r.Device, r.Driver, r.PowerState = 1, driver, power }
	}
	play(t, []step{
		{"", with("xocl", "D0"), ""}, {health.RecoveryFailed, with("xocl", "D0"), "recovery-failed"},
		{"", with("", "unknown"), "recovery-failed"}, {"", func(r *health.Reading) { r.Device, r.Driver = 0, "" }, "recovery-failed"},
		{"", with("xocl", "D0"), ""},
	})
	play(t, []step{
		{"", with("xocl", "D3cold"), "power-lost"}, {"", with("", "unknown"), ""}, {"", with("xocl", "D3cold"), ""},
	})
}

// TestACounterThatCannotBeRead says what it said before: an error is not forgotten because the card falls asleep.
func TestACounterThatCannotBeRead(t *testing.T) {
	j, policy := health.NewJudge(health.DefaultPolicy(), nil), health.DefaultPolicy()
	for i, c := range []struct {
		fatal *uint64
		at    time.Duration
		want  string
	}{
		{new(uint64), 0, ""}, {nil, time.Second, ""}, {new(uint64(2)), 2 * time.Second, "aer-fatal"}, {nil, time.Minute, "aer-fatal"},
		{new(uint64(2)), 2 * time.Minute, "aer-fatal"}, {nil, 2*time.Second + policy.CounterQuiet - 1, "aer-fatal"},
		{nil, 2*time.Second + policy.CounterQuiet, ""}, {new(uint64(2)), time.Second + 2*policy.CounterQuiet, ""},
	} {
		got := j.See("a", "lpu0", health.Reading{AERFatal: c.fatal}, time.Hour+c.at)
		if ids(got.Reasons) != c.want || c.want != "" && got.State != health.Unhealthy {
			t.Errorf("reading %d: %s %q, want %q", i, got.State, ids(got.Reasons), c.want)
		}
	}
}

// TestNext: the machine is read again when a grace ends, and at every interval until all is settled.
func TestNext(t *testing.T) {
	j := health.NewJudge(health.DefaultPolicy(), nil)
	see := func(r rune, at time.Duration) { j.See("a", "lpu0", reading(r), time.Hour+at) }
	for _, c := range []struct {
		reading   rune
		at, next  time.Duration
		unsettled bool
	}{
		{'h', 0, 0, false}, {'1', time.Second, 6 * time.Second, true}, {'1', 2 * time.Second, 6 * time.Second, true},
		{'1', 6 * time.Second, 0, false}, {'h', 7 * time.Second, 0, true}, {'h', 8 * time.Second, 0, true}, {'h', 10 * time.Second, 0, false},
	} {
		see(c.reading, c.at)
		want := c.next
		if want > 0 {
			want += time.Hour
		}
		if at, unsettled := j.Next(time.Hour + c.at); at != want || unsettled != c.unsettled {
			t.Errorf("after %c at %v: %v, %t, want %v, %t", c.reading, c.at, at, unsettled, want, c.unsettled)
		}
	}
}

// happening is one thing in a sequence: a reading or an event, and how long after the one before.
type happening struct {
	after   time.Duration
	reading rune // 0: none
	event   health.Event
}

// model is how the state of one LPU must be, written down from its whole past each time.
type model struct {
	past []happening // readings only, with event empty
	// States of the readings before this one.
	states []health.State
	failed bool // a recovery failed, and no driver was bound since
}

// bad tells whether something was wrong with a reading, or with the recovery before it.
func (m *model) bad(at int) bool {
	return m.past[at].reading != 'h' && m.past[at].reading != 'w' || m.past[at].event != ""
}

// next is the state after the latest reading.
func (m *model) next() health.State {
	n := len(m.past) - 1
	latest := m.past[n]
	good, lasted := 0, time.Duration(0) // how many good readings in a row, and over which time
	for i := n; i >= 0 && !m.bad(i); i-- {
		good++
		if i < n {
			lasted += m.past[i+1].after
		}
	}
	before := health.State("")
	if n > 0 {
		before = m.states[n-1]
	}
	if good > 0 {
		if before == "" || before == health.Healthy || good >= 3 && lasted >= 3*time.Second {
			return health.Healthy
		}
		return before
	}
	var run, same time.Duration // how long the latest fault lasts; what cannot be read does not end it
	bad := 0
	for i := n; i >= 0 && m.bad(i); i-- {
		bad++
	}
	for i := n; i > 0 && (m.past[i-1].reading == latest.reading || m.past[i-1].reading == '?'); i-- {
		if run += m.past[i].after; m.past[i-1].reading == latest.reading {
			same = run
		}
	}
	grace := map[rune]time.Duration{'1': 5 * time.Second, 'o': 30 * time.Second, '?': 30 * time.Second}[latest.reading]
	switch {
	case latest.reading == 'g' || m.failed:
		return health.Unhealthy
	case before == "" && grace > 0:
		return health.Unknown
	case before == "":
		return health.Unhealthy
	case before == health.Unhealthy || bad < 2:
		return before
	case same < grace:
		return health.Unknown
	}
	return health.Unhealthy
}

// TestSequences plays 10,000 sequences of faults, events and restarts against the model. A second judge gets every event twice, and is
// restarted after each step: it must say the same.
func TestSequences(t *testing.T) {
	random := long.Rand(t)
	for seed := range long.Rounds(t, 10_000) {
		one, other := health.NewJudge(health.DefaultPolicy(), nil), health.NewJudge(health.DefaultPolicy(), nil)
		now, m, played := time.Hour, &model{}, ""
		for range 2 + random.IntN(40) {
			pause := time.Duration(100+random.IntN(1200)) * time.Millisecond
			if random.IntN(5) == 0 {
				pause += 3 * time.Second
			}
			now += pause
			what := []rune("hhhhhhhhhhgoooorr??1111w")[random.IntN(24)]
			if len(m.past) > 0 && random.IntN(3) > 0 { // faults last
				what = m.past[len(m.past)-1].reading
			}
			event := []health.Event{"", "", "", "", "", "", health.RecoveryFailed, health.Bound, health.Unbound}[random.IntN(9)]
			if event != "" && len(m.past) > 0 {
				one.Tell("a", event, now)
				other.Tell("a", event, now)
				other.Tell("a", event, now)
				m.failed = event == health.RecoveryFailed || m.failed && event != health.Bound
			}
			step := happening{after: pause, reading: what}
			if m.failed {
				step.event = health.RecoveryFailed
			}
			m.past = append(m.past, step)
			want := m.next()
			m.states = append(m.states, want)
			got := one.See("a", "lpu0", reading(what), now)
			again := other.See("a", "lpu0", reading(what), now)
			played += string(what)
			if got.State != want || ids(got.Reasons) != ids(again.Reasons) || again.State != want {
				t.Fatalf("seed %d: after %s (failed: %t): %s, want %s; restarted: %s, reasons %q and %q", seed, played, m.failed,
					got.State, want, again.State, ids(got.Reasons), ids(again.Reasons))
			}
			other = health.NewJudge(health.DefaultPolicy(), other.Records())
		}
		if n := len(one.Records()); n != 1 {
			t.Fatalf("seed %d: %d LPUs are remembered", seed, n)
		}
	}
}

// TestAResetDuringARecovery is the kernel's own: the driver knows of it.
func TestAResetDuringARecovery(t *testing.T) {
	off := func(r *health.Reading) { r.Command = new(uint16) }
	play(t, []step{
		{}, {health.RecoveryBegan, off, "in-recovery"}, {"", off, "in-recovery"}, {health.RecoveryEnded, nil, "recovered"},
		{"", off, "reset-behind-driver recovered"},
	})
}
