package discovery

import (
	"fmt"
	"slices"
)

// Severity says how bad a finding is.
type Severity string

// The severities: an error makes something unusable, a warning needs a look, a note explains.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note"
)

// Finding is one thing lpuctl found out of order: what, where, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	ID       string   `json:"id"`             // stable, for scripts and for the documentation: "no-driver"
	Subject  string   `json:"subject"`        // the LPU, PCI address or file it is about
	File     string   `json:"file,omitempty"` // path of the file that is at fault, if one is
	Line     int      `json:"line,omitempty"` // in File, from 1
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy"`
}

// HasErrors tells whether one of the findings is an error.
func HasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == SeverityError })
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
