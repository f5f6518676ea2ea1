// Package finding says what lpuctl finds out of order: one form for every command, one collector, and one table
// of all ids with what each means and what to do about it (docs/findings.md is made of it).
package finding

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity says how bad a finding is.
type Severity string

// The severities: an error makes something unusable, a warning needs a look, a note explains.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// ID names a kind of finding. It is stable, for scripts and for the documentation: "no-driver".
type ID string

// Finding is one thing that is out of order: what, where, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	ID       ID       `json:"id"`
	Subject  string   `json:"subject"`        // the LPU, PCI address, container runtime or file it is about
	File     string   `json:"file,omitempty"` // path of the file that is at fault, if one is
	Line     int      `json:"line,omitempty"` // in File, from 1
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy"`
}

// New makes a finding with the severity that the table gives its id. Without a remedy it has the table's.
func New(id ID, subject, message, remedy string) Finding {
	rule := RuleOf(id)
	return Finding{Severity: rule.Severity, ID: id, Subject: subject, Message: message, Remedy: cmp.Or(remedy, rule.Remedy)}
}

// At says in which file the finding is, and on which line; 0 is the file as a whole.
func (f *Finding) At(file string, line int) *Finding {
	f.File, f.Line = file, line
	return f
}

// String is the finding on one line, as people read it, without the remedy.
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

// Add adds a finding as [New] makes it, and returns it until the next one is added: so that its place can be said.
// The list grows into new memory, because a reader that was given up on may still add to a copy of it.
func (l *List) Add(id ID, subject, message, remedy string) *Finding {
	*l = append(slices.Clip(*l), New(id, subject, message, remedy))
	return &(*l)[len(*l)-1]
}

// HasErrors tells whether one of the findings is an error.
func (l List) HasErrors() bool { return l.FirstError() != nil }

// FirstError is the first error of the list; nil if there is none.
func (l List) FirstError() *Finding {
	if i := slices.IndexFunc(l, func(f Finding) bool { return f.Severity == Error }); i >= 0 {
		return &l[i]
	}
	return nil
}

// MoreThanNotes tells whether one of the findings is an error or a warning.
func (l List) MoreThanNotes() bool {
	return slices.ContainsFunc(l, func(f Finding) bool { return f.Severity != Note })
}
