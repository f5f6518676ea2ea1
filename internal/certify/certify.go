// Package certify checks on a node what lpuctl assumes of the hardware: each numbered
// assumption of docs/hardware.md is held, refuted, or cannot be decided there. It writes
// nothing, opens no device, and takes what drivers say from one scan.
package certify

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is what a node says of an assumption.
type Verdict string

// The verdicts.
const (
	Held      Verdict = "held"
	Refuted   Verdict = "refuted"
	Undecided Verdict = "undecided" // this node cannot tell, or not as it is now
)

// Check is one assumption.
type Check struct {
	Number string // as docs/hardware.md has it: "HW-1"
	Claim  string // in one sentence
	// Takes is what it takes to decide it, or the part of it that no look at files decides.
	Takes string
	judge func(*Facts) answer
}

// Evidence is what a verdict stands on.
type Evidence struct {
	Path  string `json:"path"` // with the root
	Value string `json:"value"`
}

// Result is a check with its verdict.
type Result struct {
	Number  string  `json:"number"`
	Verdict Verdict `json:"verdict"`
	Claim   string  `json:"claim"`
	// Evidence is of the verdict. Where there is none, what was seen is there all the same.
	Evidence []Evidence `json:"evidence"`
	// Takes is what is left to see; of a refuted assumption nothing is.
	Takes string `json:"takes,omitempty"`
}

// answer is the verdict of a check. The zero answer is that it cannot be decided.
type answer struct {
	verdict  Verdict
	evidence []Evidence
	takes    string // in place of Check.Takes
}

// Checks returns all checks in the order of their numbers.
func Checks() []Check {
	return slices.Concat(busChecks(), driverChecks(), programChecks(), ringChecks(), otherChecks())
}

// Certify judges all assumptions.
func Certify(f *Facts) []Result {
	results := []Result{}
	for _, c := range Checks() {
		results = append(results, c.on(f))
	}
	return results
}

func (c *Check) on(f *Facts) Result {
	r := Result{Number: c.Number, Verdict: Undecided, Claim: c.Claim, Takes: c.Takes, Evidence: []Evidence{}}
	if c.judge == nil {
		return r
	}
	a := c.judge(f)
	if a.verdict != "" {
		r.Verdict = a.verdict
	}
	r.Evidence = append(r.Evidence, a.evidence...)
	if a.takes != "" {
		r.Takes = a.takes
	}
	if r.Verdict == Refuted {
		r.Takes = ""
	}
	return r
}

// tally collects what speaks for and against an assumption, card by card.
type tally struct{ good, bad, seen []Evidence }

// see adds what was read: it speaks for the assumption, or against it.
func (t *tally) see(good bool, path, value string) {
	if good {
		t.good = append(t.good, Evidence{path, value})
	} else {
		t.bad = append(t.bad, Evidence{path, value})
	}
}

// note adds what was read and decides nothing.
func (t *tally) note(path, value string) { t.seen = append(t.seen, Evidence{path, value}) }

// answer returns what all cards together say: one that contradicts is enough.
func (t *tally) answer() answer {
	switch {
	case len(t.bad) > 0:
		return answer{verdict: Refuted, evidence: t.bad}
	case len(t.good) > 0:
		return answer{verdict: Held, evidence: t.good}
	}
	return answer{evidence: t.seen}
}

// sorted puts what was seen in the order of its paths.
func (t *tally) sorted() *tally {
	for _, list := range [][]Evidence{t.good, t.bad} {
		slices.SortStableFunc(list, func(a, b Evidence) int { return strings.Compare(a.Path, b.Path) })
	}
	return t
}

// Count returns how many assumptions have a verdict.
func Count(results []Result, verdict Verdict) (n int) {
	for i := range results {
		if results[i].Verdict == verdict {
			n++
		}
	}
	return n
}

// Says returns in one line what the verdict stands on, or what it takes to have one.
func (r *Result) Says() string {
	said := ""
	if len(r.Evidence) > 0 {
		said = r.Evidence[0].Path + ": " + r.Evidence[0].Value
	}
	if more := len(r.Evidence) - 1; more > 0 {
		said += fmt.Sprintf(" (and %d more)", more)
	}
	if r.Verdict != Undecided {
		return said
	}
	if said != "" {
		said += "; "
	}
	return said + "takes: " + r.Takes
}
