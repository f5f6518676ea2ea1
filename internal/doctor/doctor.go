// Package doctor follows an LPU from its slot into the container, link by link, and says
// at which link the way ends. A check is a small value. What other commands answer too is
// asked of the same functions: here is only the order, what a link needs, and what follows
// from what.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Limit is how long all checks together may usually take.
const Limit = 3 * time.Second

// Check is what is looked at for one link.
type Check struct {
	Link  Link
	About string // what it looks at, in a few words: "the driver of each card"
	Run   func(context.Context) Result
}

// Answer returns a check of the link of which the answer is known already.
func (l Link) Answer(says string, findings finding.List) Check {
	return Check{l, string(l), func(context.Context) Result { return Result{Says: says, Findings: findings} }}
}

// Result is what a check found.
type Result struct {
	Says     string // what is well, in a few words: "8 of 8 bound to xocl"
	Findings finding.List
	// Absent is why there is nothing to look at: "no kubelet on this node".
	Absent string
	Unseen []Unseen
	// Part: it holds of some LPUs only, and a link before has the reason.
	Part bool
	// NoLPU: the node has no LPU at all.
	NoLPU bool
}

// Unseen is what could not be looked at.
type Unseen struct {
	What  string `json:"what"`  // "whether the device plugin runs"
	Why   string `json:"why"`   // "permission denied"
	Right string `json:"right"` // what it takes: "run it as root"
}

func (u Unseen) String() string {
	text := u.What + ": not seen, " + u.Why
	if u.Right != "" {
		text += "; " + u.Right
	}
	return text
}

// State is how a link is.
type State string

// The states, the worst last. A link follows if all that is wrong with it comes from
// broken links before it.
const (
	Well    State = "well"
	Absent  State = "absent"  // there is nothing to look at
	Unknown State = "unknown" // part of it could not be looked at, and the rest is well
	Warned  State = "warning"
	Follows State = "follows"
	Broken  State = "broken"
)

// Step is a link with what its checks found.
type Step struct {
	Link     Link         `json:"link"`
	State    State        `json:"state"`
	Says     string       `json:"says,omitempty"`
	Findings finding.List `json:"findings"`
	Unseen   []Unseen     `json:"unseen"`
	From     []Link       `json:"from,omitempty"` // the broken links that it follows from

	part bool
}

// Diagnosis is the whole way, in the order of its links.
type Diagnosis struct {
	Steps []Step `json:"links"`
	NoLPU bool   `json:"-"` // the node has no LPU at all
}

// Diagnose runs checks side by side and puts together what they found. It returns after
// some time at the latest, also if a check hangs: what has not answered by then counts as
// not seen.
func Diagnose(ctx context.Context, within time.Duration, checks []Check) *Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answers := make([]chan Result, len(checks))
	for i, c := range checks {
		answers[i] = make(chan Result, 1)
		go func() { answers[i] <- c.Run(ctx) }()
	}
	d := &Diagnosis{Steps: []Step{}}
	found := map[Link][]Result{}
	for i, c := range checks {
		r := outcome(ctx, within, c, answers[i])
		found[c.Link] = append(found[c.Link], r)
		d.NoLPU = d.NoLPU || r.NoLPU
	}
	for _, link := range slices.Concat(preLinks(), Links()) {
		if results := found[link]; len(results) > 0 {
			d.Steps = append(d.Steps, join(link, results))
		}
	}
	d.blame()
	d.fold()
	return d
}

// outcome returns the answer of a check, or what is known without it when the time is over.
func outcome(ctx context.Context, within time.Duration, c Check, answer <-chan Result) Result {
	select {
	case r := <-answer:
		return r
	case <-ctx.Done():
	}
	select { // it may have answered in the same moment
	case r := <-answer:
		return r
	default:
		return Result{Unseen: []Unseen{{c.About, "no answer within " + within.String(), "look for what hangs: dmesg, mount"}}}
	}
}

// join makes a step of the results of all checks of a link.
func join(link Link, results []Result) Step {
	s := Step{Link: link, Findings: finding.List{}, Unseen: []Unseen{}}
	absent := 0
	for _, r := range results {
		s.Findings = append(s.Findings, r.Findings...)
		s.Unseen = append(s.Unseen, r.Unseen...)
		s.part = s.part || r.Part
		if r.Absent != "" {
			absent++
		}
		for _, text := range []string{r.Says, r.Absent} {
			if text != "" && s.Says != "" {
				s.Says += "; "
			}
			s.Says += text
		}
	}
	switch {
	case s.Findings.HasErrors():
		s.State = Broken
	case s.Findings.MoreThanNotes():
		s.State = Warned
	case len(s.Unseen) > 0:
		s.State = Unknown
	case absent == len(results):
		s.State = Absent
	default:
		s.State = Well
	}
	return s
}

// fold marks the steps of which all that is wrong follows from a broken link before.
func (d *Diagnosis) fold() {
	broken := map[Link]bool{}
	for i := range d.Steps {
		s := &d.Steps[i]
		was := s.State
		if from := s.causes(broken); len(from) > 0 {
			s.State, s.From = Follows, from
		}
		broken[s.Link] = was == Broken && s.Findings.HasErrors() // a warning that is blamed hides nothing
	}
}

// blame makes a link broken that only has a warning, if an error of another link may come
// of that. Both are shown, because the warning may also be there for years.
func (d *Diagnosis) blame() {
	for _, f := range d.Findings() {
		for i := range d.Steps {
			s := &d.Steps[i]
			if f.Severity == finding.Error && s.State == Warned && slices.ContainsFunc(suspects(f.ID), s.Findings.Has) {
				s.State = Broken
			}
		}
	}
}

// causes returns the broken links from which all that is wrong with a step follows; nil if
// that is not so, or nothing is wrong.
func (s *Step) causes(broken map[Link]bool) (from []Link) {
	because := func(links []Link) bool {
		links = slices.DeleteFunc(links, func(l Link) bool { return !broken[l] })
		from = append(from, links...)
		return len(links) > 0
	}
	for _, f := range s.Findings {
		if f.Severity != finding.Note && !because(causes(f.ID)) {
			return nil
		}
	}
	if s.part {
		because([]Link{Card, Driver, Node})
	}
	slices.Sort(from)
	return slices.Compact(from)
}

// First returns the first broken link: the cause to look at first. nil: none is broken.
func (d *Diagnosis) First() *Step {
	i := slices.IndexFunc(d.Steps, func(s Step) bool { return s.State == Broken })
	if i < 0 {
		return nil
	}
	return &d.Steps[i]
}

// Findings returns all findings, in the order of the links.
func (d *Diagnosis) Findings() (all finding.List) {
	for _, s := range d.Steps {
		all = append(all, s.Findings...)
	}
	return all
}
