package health

import "time"

// Policy says how readings become a state. [DefaultPolicy] has the values for which
// nothing is configured.
type Policy struct {
	// BadReadings: so many in a row make an LPU unhealthy, if the fault is not certain at
	// once.
	BadReadings  int
	GoodReadings int           // so many in a row, over at least GoodFor, make it healthy again
	GoodFor      time.Duration // see GoodReadings
	ResetGrace   time.Duration // for a card that reads as all ones: a reset does that too
	// Grace is for a card that is offline, not ready, does not answer in time, or is being
	// recovered.
	Grace time.Duration
	// CounterQuiet: an error that was counted is forgotten after this time without another.
	CounterQuiet time.Duration

	CorrectableErrors uint64 // more than so many within CounterQuiet are a warning
	NonFatalErrors    uint64 // more than so many within CounterQuiet are a warning

	// DegradedLink is the severity of a link that is slower or narrower than it was:
	// "warning", or "unhealthy".
	DegradedLink string
	// MaxCelsius is the temperature from which an LPU is unhealthy. 0: the card's own
	// limit (tempN_crit), as a warning.
	MaxCelsius float64
}

// DefaultPolicy is the policy for which nothing is configured. A hot reset of a card is
// assumed to take up to half a minute (xocl; HW-14 of docs/hardware.md), a reset of a PCI
// function a few seconds.
func DefaultPolicy() Policy {
	return Policy{
		BadReadings: 2, GoodReadings: 3, GoodFor: 3 * time.Second,
		ResetGrace: 5 * time.Second, Grace: 30 * time.Second, CounterQuiet: 10 * time.Minute,
		CorrectableErrors: 100, NonFatalErrors: 0,
		DegradedLink: DegradedWarning,
	}
}

// The values of Policy.DegradedLink.
const (
	DegradedWarning   = "warning"
	DegradedUnhealthy = "unhealthy"
)
