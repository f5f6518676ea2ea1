// Package finding describes the problems that lpuctl reports. It has one type of finding
// for every command, one collector, and one table of all ids with their meaning and
// remedy. docs/findings.md is generated from that table.
package finding

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is how serious a finding is.
type Severity string

// The severities: an error makes something unusable, a warning needs a look, a note
// explains.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// ID names a kind of finding. It is stable, for scripts and for the documentation:
// "no-driver".
type ID string

// Finding is one problem: what is wrong, where, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	ID       ID       `json:"id"`
	// Subject is what it is about: an LPU, PCI address, container runtime or file.
	Subject string `json:"subject"`
	File    string `json:"file,omitempty"` // path of the file with the problem, if there is one
	Line    int    `json:"line,omitempty"` // in File, from 1
	Message string `json:"message"`
	// Remedy says what to do. Commands stand at its end, as they are typed: after a colon
	// if there are words before them, with semicolons between them.
	Remedy string `json:"remedy"`
}

// New returns a finding. The table gives its severity, and its remedy if remedy is empty.
func New(id ID, subject, message, remedy string) Finding {
	rule := RuleOf(id)
	return Finding{Severity: rule.Severity, ID: id, Subject: subject, Message: message, Remedy: cmp.Or(remedy, rule.Remedy)}
}

// At sets the file and the line of the finding; line 0 is the file as a whole.
func (f *Finding) At(file string, line int) *Finding {
	f.File, f.Line = file, line
	return f
}

// String formats the finding on one line for people, without the remedy.
func (f Finding) String() string {
	where := f.Subject
	if f.File != "" && f.File != f.Subject {
		where += ": " + f.File
	}
	if f.Line > 0 {
		where += fmt.Sprintf(":%d", f.Line)
	}
	return fmt.Sprintf("%s: %s: %s [%s]", f.Severity, where, f.Message, f.ID)
}

// List collects findings.
type List []Finding

// Add adds a finding as [New] makes it. It returns the finding so that [Finding.At] can
// be called on it, before the next is added. The list always grows into new memory,
// because a read that timed out may still add to a copy of it.
func (l *List) Add(id ID, subject, message, remedy string) *Finding {
	*l = append(slices.Clip(*l), New(id, subject, message, remedy))
	return &(*l)[len(*l)-1]
}

// Has reports whether one of the findings has the id.
func (l List) Has(id ID) bool {
	return slices.ContainsFunc(l, func(f Finding) bool { return f.ID == id })
}

// HasErrors reports whether one of the findings is an error.
func (l List) HasErrors() bool { return l.FirstError() != nil }

// FirstError is the first error of the list; nil if there is none.
func (l List) FirstError() *Finding {
	if i := slices.IndexFunc(l, func(f Finding) bool { return f.Severity == Error }); i >= 0 {
		return &l[i]
	}
	return nil
}

// MoreThanNotes reports whether one of the findings is an error or a warning.
func (l List) MoreThanNotes() bool {
	return slices.ContainsFunc(l, func(f Finding) bool { return f.Severity != Note })
}
