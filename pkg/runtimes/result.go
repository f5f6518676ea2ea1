package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// ResultPath is the file, under the root, with the latest result of the self-check: what [Check] found of the runtime that the kubelet
// uses. It is for programs that must not have the runtime's socket, because that socket is root on the node.
const ResultPath = "/var/lib/lpuctl/runtime.json"

const (
	resultVersion = "lpuctl.hyperaccel.ai/v1alpha1"
	resultKind    = "RuntimeResult"
	resultMax     = 64 << 10 // bytes; a result has less than two thousand
)

// The shortest and the longest time between two self-checks.
const (
	MinPeriod = time.Second
	MaxPeriod = 24 * time.Hour
)

// Result is what one self-check found.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "RuntimeResult"
	host.Moment
	Time          time.Time `json:"time"`              // of the clock, for people: nothing is decided by it
	PeriodSeconds int64     `json:"periodSeconds"`     // from one check to the next
	Runtime       *Checked  `json:"runtime,omitempty"` // nil: no runtime is known to be the kubelet's
}

// Checked is what a self-check found of the runtime that the kubelet uses.
type Checked struct {
	Name         string           `json:"name"`
	Version      string           `json:"version,omitempty"`
	CDI          State            `json:"cdi"`               // now: On, Off or Unknown
	AfterRestart State            `json:"afterRestart"`      // likewise
	Finding      *finding.Finding `json:"finding,omitempty"` // the first error, or else the first warning
}

// NewResult makes the result of what [Check] found. at is when it began, period the time from one check to the next, which is stated in
// whole seconds.
func NewResult(all []Runtime, at host.Moment, period time.Duration) *Result {
	r := &Result{resultVersion, resultKind, at, time.Now().UTC().Truncate(time.Second), int64(period / time.Second), nil}
	if i := slices.IndexFunc(all, func(r Runtime) bool { return r.UsedByKubelet }); i >= 0 {
		used := all[i]
		r.Runtime = &Checked{used.Name, used.Version, supported(used.CDI), supported(used.AfterRestart), used.Findings.FirstError()}
		if warning := slices.IndexFunc(used.Findings, isWarning); r.Runtime.Finding == nil && warning >= 0 {
			r.Runtime.Finding = &used.Findings[warning]
		}
	}
	return r
}

func isWarning(f finding.Finding) bool { return f.Severity == finding.Warning }

// supported is Off for a release that has no CDI: a container gets as little.
func supported(s State) State {
	if s == Unsupported {
		return Off
	}
	return s
}

// ErrYounger is that a younger result is in place.
var ErrYounger = errors.New("the result of a later check is there already")

// Write replaces the file at path as [wholefile.Replace] does, and makes its directory. The error is ErrYounger, and the file stays, if it
// has the result of a check that began later: this one may have hung. now is the present moment; what is later than that was never checked.
// Of two that end in the same instant either may stay.
func (r *Result) Write(path string, now host.Moment) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := wholefile.MakeDir(filepath.Dir(path)); err != nil {
		return err
	}
	if there, _ := readResult(path); there != nil && there.After(r.Moment) && !there.After(now) {
		return ErrYounger
	}
	return wholefile.Replace(path, append(data, '\n'))
}

// errVersion is that a document is not of the version that this lpuctl reads.
var errVersion = errors.New("it is of another version than this lpuctl reads")

// parseResult reads a document. Keys that it does not know do not matter.
func parseResult(data []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Kind != resultKind {
		return nil, fmt.Errorf("it is of kind %.40q, not %s", r.Kind, resultKind)
	}
	if r.APIVersion != resultVersion {
		return nil, fmt.Errorf("%w (%.80q, not %s)", errVersion, r.APIVersion, resultVersion)
	}
	period := time.Duration(r.PeriodSeconds) * time.Second
	if r.PeriodSeconds > int64(MaxPeriod/time.Second) || period < MinPeriod {
		return nil, fmt.Errorf("periodSeconds is %d, not between %d and %d", r.PeriodSeconds, MinPeriod/time.Second, MaxPeriod/time.Second)
	}
	if r.SinceBoot < 0 {
		return nil, fmt.Errorf("sinceBoot is %d", r.SinceBoot)
	}
	if c := r.Runtime; c != nil {
		known := func(s State) bool { return s == On || s == Off || s == Unknown }
		if c.Name == "" || !known(c.CDI) || !known(c.AfterRestart) {
			return nil, fmt.Errorf("runtime is %.40q with cdi %.20q, after a restart %.20q", c.Name, c.CDI, c.AfterRestart)
		}
	}
	return &r, nil
}

// usedFor is how many periods long a result counts. One may be late.
const usedFor = 2

// usable returns why a result does not count at a moment; nil if it does. The clock plays no part, because it may be set.
func (r *Result) usable(now host.Moment) *finding.Finding {
	limit := usedFor * time.Duration(r.PeriodSeconds) * time.Second
	switch {
	case r.Boot == "" || r.Boot != now.Boot:
		return note(unknown("the self-check of the runtime has not run since this boot", whenLate)) // as after every boot, for a minute
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

// Answer is what is known at a moment of the runtime that the kubelet uses. The zero value is that nobody has asked.
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
	if c.Finding != nil && c.Finding.Message != "" {
		why = c.Finding.Message
	}
	if c.Finding != nil && c.Finding.Remedy != "" {
		remedy = c.Finding.Remedy
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

// ReadAnswer is what the result in a file, which lies at path on this machine, says at a moment. It never waits.
func ReadAnswer(path string, now host.Moment) Answer {
	r, why := readResult(path)
	if why != nil {
		return Answer{Unknown, why}
	}
	return r.Answer(now)
}

// readResult reads the file, or says why it cannot be used. That is said of the path that it has on the node: for who reads it the node may
// lie below another root.
func readResult(path string) (*Result, *finding.Finding) {
	data, err := wholefile.ReadTrusted(path, resultMax)
	_, untrusted := errors.AsType[*wholefile.UntrustedError](err)
	switch {
	case host.IsAbsent(err):
		return nil, note(unknown("the self-check of the runtime has left no result: there is no "+ResultPath, installIt))
	case untrusted:
		return nil, unknown(fmt.Sprintf("%s is not trusted: %v", ResultPath, err), removeIt)
	case err != nil:
		return nil, unknown(fmt.Sprintf("%s cannot be read: %v", ResultPath, host.Reason(err)), removeIt)
	}
	r, err := parseResult(data)
	if err != nil {
		remedy := again
		if errors.Is(err, errVersion) {
			remedy = sameOnBoth
		}
		return nil, unknown(fmt.Sprintf("%s cannot be used: %v", ResultPath, err), remedy)
	}
	return r, nil
}
