package discovery

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// TestHysteresis plays readings of one LPU, a second apart, and looks at the resulting health.
func TestHysteresis(t *testing.T) {
	for name, c := range map[string]struct{ readings, want string }{
		// h: healthy; g: gone; o: offline; r: factory image; ?: does not answer.    want: h, u(nhealthy), ?
		"gone counts at once":                {"hhgg", "hhuu"},
		"healthy after three seconds":        {"hghhhhh", "huuuuhh"},
		"a relapse starts again":             {"hghhghhhhh", "huuuuuuuhh"},
		"one bad reading is none":            {"hrhhrh", "hhhhhh"},
		"two are":                            {"hrrr", "hhuu"},
		"a reset is not known for a while":   {"hoooo" + strings.Repeat("o", 30), "hh???" + strings.Repeat("?", 26) + "uuuu"},
		"a reset that ends":                  {"hooohhhhh", "hh?????hh"},
		"a card that does not answer":        {"h???" + strings.Repeat("?", 30), "hh??" + strings.Repeat("?", 27) + "uuu"},
		"sick from the start":                {"rrhhhhh", "uuuuuhh"},
		"not known from the start":           {"?hhhhh", "????hh"},
		"offline after it was found missing": {"hgooh", "huuuu"},
	} {
		h, now, got := hysteresis{}, time.Unix(0, 0), ""
		for _, r := range c.readings {
			inv := &Inventory{LPUs: []LPU{lpuReading(r)}}
			h.apply(inv, now)
			now = now.Add(time.Second)
			got += map[Health]string{Healthy: "h", Unhealthy: "u", HealthUnknown: "?"}[inv.LPUs[0].Health]
		}
		if got != c.want {
			t.Errorf("%s: of  %s\n  got %s\n want %s", name, c.readings, got, c.want)
		}
	}
}

func lpuReading(reading rune) LPU {
	l := LPU{Usable: true, Health: Healthy}
	switch reading {
	case 'g':
		l.reason(finding.Gone, "", "")
	case 'o':
		l.reason(finding.Offline, "", "")
	case 'r':
		l.reason(finding.RecoveryShell, "", "")
	case '?':
		l.reason(finding.ReadStalled, "", "")
		l.Health = HealthUnknown
	}
	return l
}

// TestWaitAfterAnOverflow: where inotify missed changes, the next scan does not wait for the interval.
func TestWaitAfterAnOverflow(t *testing.T) {
	missed := make(chan error, 1)
	missed <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if !wait(ctx, nil, missed, time.Hour) || len(missed) != 0 {
		t.Error("the error is not received")
	}
}

// TestAScanThatIsRepeatedAtOnce, to write the CDI spec of it, is no second reading.
func TestAScanThatIsRepeatedAtOnce(t *testing.T) {
	h, now := hysteresis{}, time.Unix(0, 0)
	for _, step := range []struct {
		after   time.Duration
		reading rune
		want    Health
	}{
		{0, 'h', Healthy},
		{time.Second, 'r', Healthy},
		{apart - 1, 'r', Healthy},
		{1, 'r', Unhealthy}, // the second one
	} {
		now = now.Add(step.after)
		inv := &Inventory{LPUs: []LPU{lpuReading(step.reading)}}
		h.apply(inv, now)
		if got := inv.LPUs[0].Health; got != step.want {
			t.Errorf("%c after %v: %s, want %s", step.reading, step.after, got, step.want)
		}
	}
}
