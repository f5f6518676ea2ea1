package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// HealthConfig says how the health of LPUs is judged; see [health.Policy].
type HealthConfig struct {
	BadReadings       int    `json:"badReadings"`
	GoodReadings      int    `json:"goodReadings"`
	GoodFor           string `json:"goodFor"`
	ResetGrace        string `json:"resetGrace"`
	Grace             string `json:"grace"`
	CounterQuiet      string `json:"counterQuiet"`
	CorrectableErrors uint32 `json:"correctableErrors"`
	NonFatalErrors    uint32 `json:"nonFatalErrors"`
	DegradedLink      string `json:"degradedLink"` // warning or unhealthy
	MaxCelsius        int    `json:"maxCelsius"`   // 0: the card's own limit, as a warning
}

func defaultHealth() HealthConfig {
	p := health.DefaultPolicy()
	return HealthConfig{
		BadReadings: p.BadReadings, GoodReadings: p.GoodReadings, GoodFor: timeText(p.GoodFor),
		ResetGrace: timeText(p.ResetGrace), Grace: timeText(p.Grace), CounterQuiet: timeText(p.CounterQuiet),
		CorrectableErrors: uint32(p.CorrectableErrors), NonFatalErrors: uint32(p.NonFatalErrors),
		DegradedLink: p.DegradedLink, MaxCelsius: int(p.MaxCelsius),
	}
}

// timeText is a time as people write it: 10m, not 10m0s.
func timeText(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

// checkTime returns an error if a text is not a time within these limits.
func checkTime(text string, least, most time.Duration) error {
	if d, err := time.ParseDuration(text); err != nil || d < least || d > most {
		return fmt.Errorf("%q is not a time between %s and %s", text, timeText(least), timeText(most))
	}
	return nil
}

// Policy is what a scan needs of it. check has seen that the times are times.
func (c *HealthConfig) Policy() *health.Policy {
	duration := func(text string) time.Duration { d, _ := time.ParseDuration(text); return d }
	return &health.Policy{
		BadReadings: c.BadReadings, GoodReadings: c.GoodReadings, GoodFor: duration(c.GoodFor),
		ResetGrace: duration(c.ResetGrace), Grace: duration(c.Grace), CounterQuiet: duration(c.CounterQuiet),
		CorrectableErrors: uint64(c.CorrectableErrors), NonFatalErrors: uint64(c.NonFatalErrors),
		DegradedLink: c.DegradedLink, MaxCelsius: float64(c.MaxCelsius),
	}
}

// check finds values that the types allow and that no user can mean.
func (c *HealthConfig) check() (faults strictyaml.Faults) {
	fault := func(bad bool, key, message, remedy string) {
		if bad {
			faults.Add(key, message, remedy)
		}
	}
	number := func(key string, value, least, most, usual int) {
		fault(value < least || value > most, key, fmt.Sprintf("%d is not between %d and %d", value, least, most), fmt.Sprint("write ", usual))
	}
	duration := func(key, value string, least, most time.Duration, usual string) {
		if err := checkTime(value, least, most); err != nil {
			faults.Add(key, err.Error(), "write "+usual)
		}
	}
	usual := defaultHealth()
	number("badReadings", c.BadReadings, 1, 100, usual.BadReadings)
	number("goodReadings", c.GoodReadings, 1, 100, usual.GoodReadings)
	duration("goodFor", c.GoodFor, 0, time.Hour, usual.GoodFor)
	duration("resetGrace", c.ResetGrace, 0, 10*time.Minute, usual.ResetGrace)
	duration("grace", c.Grace, 0, time.Hour, usual.Grace)
	duration("counterQuiet", c.CounterQuiet, time.Second, 7*24*time.Hour, usual.CounterQuiet)
	fault(!slices.Contains([]string{health.DegradedWarning, health.DegradedUnhealthy}, c.DegradedLink), "degradedLink",
		fmt.Sprintf("%q is not %s or %s", c.DegradedLink, health.DegradedWarning, health.DegradedUnhealthy), "write one of these")
	if c.MaxCelsius != 0 {
		number("maxCelsius", c.MaxCelsius, 40, 150, 95)
	}
	return faults
}
