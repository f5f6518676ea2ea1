package main

import (
	"fmt"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// findingList is the document of the commands that check something.
type findingList struct {
	header
	File     string       `json:"file,omitempty"`   // that was checked
	Format   string       `json:"format,omitempty"` // of a ring table
	Findings finding.List `json:"findings"`
}

// writeFindings shows findings to people on stderr, or to programs as a document, and ends with found on an error; if strict,
// on a warning too. If nothing is wrong, people read the sentence good, unless it is empty.
func (a *app) writeFindings(l findingList, f format, strict bool, good string) error {
	l.header, l.Findings = newHeader("FindingList"), emptyNotNull(l.Findings)
	if f.isDocument() {
		if err := writeDocument(a.out, f, l); err != nil {
			return err
		}
	} else {
		a.report(l.Findings)
	}
	switch {
	case l.Findings.HasErrors(), strict && l.Findings.MoreThanNotes():
		return found()
	case good != "" && !f.isDocument() && !l.Findings.MoreThanNotes():
		a.say("%s", good)
	}
	return nil
}

// report prints findings with their remedies. Notes are left out where quiet is asked for.
func (a *app) report(findings finding.List) {
	for _, f := range findings {
		if !a.quiet || f.Severity != finding.Note {
			fmt.Fprintf(a.err, "%s\n  remedy: %s\n", printable(f.String()), printable(f.Remedy))
		}
	}
}
