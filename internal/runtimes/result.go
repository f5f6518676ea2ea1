package runtimes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// ResultPath is the file, under the root, with the latest result of the self-check: what
// [Check] found of the runtime that the kubelet uses. It is for programs that must not
// have the runtime's socket, because that socket is root on the node.
const ResultPath = "/var/lib/lpuctl/runtime.json"

// The shortest and the longest time between two self-checks.
const (
	MinPeriod = time.Second
	MaxPeriod = 24 * time.Hour
)

const resultKind = "RuntimeResult"

// Result is what one self-check found.
type Result struct {
	statefile.Header
	host.Moment
	// Time is of the clock, for people: nothing is decided by it.
	Time          time.Time `json:"time"`
	PeriodSeconds int64     `json:"periodSeconds"`     // from one check to the next
	Runtime       *Checked  `json:"runtime,omitempty"` // nil: no runtime is known to be the kubelet's
}

// Checked is what a self-check found of the runtime that the kubelet uses.
type Checked struct {
	Name         string `json:"name"`
	Version      string `json:"version,omitempty"`
	CDI          State  `json:"cdi"`          // now: On, Off or Unknown
	AfterRestart State  `json:"afterRestart"` // likewise
	// Finding is the first error, or else the first warning.
	Finding *finding.Finding `json:"finding,omitempty"`
}

// NewResult makes the result of what [Check] found. at is when it began, period the time
// from one check to the next, which is stated in whole seconds.
func NewResult(all []Runtime, at host.Moment, period time.Duration) *Result {
	r := &Result{statefile.NewHeader(resultKind), at, time.Now().UTC().Truncate(time.Second), int64(period / time.Second), nil}
	if i := slices.IndexFunc(all, func(r Runtime) bool { return r.UsedByKubelet }); i >= 0 {
		used := all[i]
		r.Runtime = &Checked{used.Name, used.Version, supported(used.CDI), supported(used.AfterRestart), used.Findings.FirstError()}
		warning := slices.IndexFunc(used.Findings, func(f finding.Finding) bool { return f.Severity == finding.Warning })
		if r.Runtime.Finding == nil && warning >= 0 {
			r.Runtime.Finding = &used.Findings[warning]
		}
	}
	return r
}

// supported is Off for a release that has no CDI: a container gets as little.
func supported(s State) State {
	if s == Unsupported {
		return Off
	}
	return s
}

// ErrYounger is that a younger result is in place.
var ErrYounger = errors.New("the result of a later check is there already")

// Write replaces the file at path as [wholefile.Replace] does, and makes its directory.
// The error is ErrYounger, and the file stays, if it has the result of a check that began
// later: this one may have hung. now is the present moment; what is later than that was
// never checked. Of two that end in the same instant either may stay.
func (r *Result) Write(path string, now host.Moment) error {
	if there, _ := readResult(path); there != nil && there.After(r.Moment) && !there.After(now) {
		return ErrYounger
	}
	return resultFile(path).Write(r)
}

// resultFile is the file of a result at a path. Keys that it does not know do not matter.
func resultFile(path string) statefile.File[Result] {
	return statefile.File[Result]{
		Path: path, Kind: resultKind, Trusted: true, Check: (*Result).check,
		Limit: 64 << 10, // a result has less than two thousand bytes
	}
}

// check finds what no self-check writes.
func (r *Result) check() error {
	const least, most = int64(MinPeriod / time.Second), int64(MaxPeriod / time.Second)
	if r.PeriodSeconds < least || r.PeriodSeconds > most {
		return fmt.Errorf("periodSeconds is %d, not between %d and %d", r.PeriodSeconds, least, most)
	}
	if r.SinceBoot < 0 {
		return fmt.Errorf("sinceBoot is %d", r.SinceBoot)
	}
	if c := r.Runtime; c != nil {
		known := func(s State) bool { return s == On || s == Off || s == Unknown }
		if c.Name == "" || !known(c.CDI) || !known(c.AfterRestart) {
			return fmt.Errorf("runtime is %.40q with cdi %.20q, after a restart %.20q", c.Name, c.CDI, c.AfterRestart)
		}
	}
	return nil
}

// usedFor is how many periods long a result counts. One may be late.
const usedFor = 2

// usable returns why a result does not count at a moment; nil if it does. The clock plays
// no part, because it may be set.
func (r *Result) usable(now host.Moment) *finding.Finding {
	limit := usedFor * time.Duration(r.PeriodSeconds) * time.Second
	switch {
	case r.Boot == "" || r.Boot != now.Boot:
		// This is so after every boot, for a minute.
		return note(unknown("the self-check of the runtime has not run since this boot", whenLate))
	case r.SinceBoot > now.SinceBoot:
		return unknown("the result of the self-check is of a time that is still to come", again)
	case now.SinceBoot-r.SinceBoot > limit:
		return unknown(fmt.Sprintf("the latest result of the self-check is older than %v", limit), whenLate)
	}
	return nil
}

// What is done about a result that does not count, by root on the node.
const (
	again      = "on the node: systemctl start lpuctl-runtime-check.service"
	removeIt   = "on the node: rm -r " + ResultPath + "; systemctl start lpuctl-runtime-check.service"
	whenLate   = "on the node: systemctl enable --now lpuctl-runtime-check.timer"
	installIt  = "nothing, if the runtime has CDI on; else install the package of lpuctl on the node, whose timer runs the check"
	sameOnBoth = "bring lpuctl on the node and the one that reads this to one version; then " + again
)

func unknown(message, remedy string) *finding.Finding {
	return newFinding(finding.CDIUnknown, location{}, message, remedy)
}

// note makes a finding a note: nothing need be wrong.
func note(f *finding.Finding) *finding.Finding {
	f.Severity = finding.Note
	return f
}

// Answer is what is known at a moment of the runtime that the kubelet uses. The zero
// value is that no program has asked.
type Answer struct {
	CDI    State            // On, Off or Unknown
	Reason *finding.Finding // why it is not On: CDIOff or CDIUnknown; nil if it is On
}

// Answer is what a result says at a moment.
func (r *Result) Answer(now host.Moment) Answer {
	if why := r.usable(now); why != nil {
		return Answer{Unknown, why}
	}
	c := r.Runtime
	if c == nil {
		return Answer{Unknown, unknown("the self-check has found no runtime that the kubelet is known to use", "")}
	}
	why, remedy := "CDI is "+string(c.CDI), finding.RuleOf(finding.CDIUnknown).Remedy
	if c.Finding != nil {
		why, remedy = cmp.Or(c.Finding.Message, why), cmp.Or(c.Finding.Remedy, remedy)
	}
	message := fmt.Sprintf("%s, which the kubelet uses: %s", strings.TrimSpace(c.Name+" "+c.Version), why)
	switch c.CDI {
	case On:
		if c.Finding == nil || c.Finding.Severity != finding.Error {
			return Answer{On, nil}
		}
		fallthrough // CDI is on, and containers get no LPU all the same
	case Off:
		return Answer{Off, newFinding(finding.CDIOff, location{}, message, remedy)}
	}
	return Answer{Unknown, unknown(message, remedy)}
}

// ReadAnswer is what the result in a file, which lies at path on this machine, says at a
// moment. It never waits.
func ReadAnswer(path string, now host.Moment) Answer {
	r, why := readResult(path)
	if why != nil {
		return Answer{Unknown, why}
	}
	return r.Answer(now)
}

// readResult reads the file, or says why it cannot be used. That is said of the path that
// it has on the node: for who reads it the node may lie below another root.
func readResult(path string) (*Result, *finding.Finding) {
	r, err := resultFile(path).Read()
	switch {
	case r != nil:
		return r, nil
	case err == nil:
		return nil, note(unknown("the self-check of the runtime has left no result: there is no "+ResultPath, installIt))
	}
	e, _ := errors.AsType[*statefile.Error](err)
	header, _ := errors.AsType[*statefile.HeaderError](err)
	why, remedy := "cannot be used", again
	switch {
	case errors.As(err, new(*wholefile.UntrustedError)):
		why, remedy = "is not trusted", removeIt
	case !e.Unusable, errors.Is(err, wholefile.ErrTooLarge):
		why, remedy = "cannot be read", removeIt
	case header != nil && header.Have.Kind == resultKind:
		remedy = sameOnBoth
	}
	return nil, unknown(fmt.Sprintf("%s %s: %v", ResultPath, why, e.Err), remedy)
}
