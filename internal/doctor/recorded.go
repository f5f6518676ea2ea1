package doctor

import "context"

// Recorded returns the check that finds what a step of an earlier diagnosis found.
func Recorded(s Step) Check {
	r := Result{Says: s.Says, Findings: s.Findings, Unseen: s.Unseen}
	if s.State == Absent {
		r.Says, r.Absent = "", s.Says
	}
	return Check{s.Link, "what was found there", func(context.Context) Result { return r }}
}
