package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// FindingList is the document of the commands that check something.
type FindingList struct {
	Header
	File     string       `json:"file,omitempty"`   // that was checked
	Format   string       `json:"format,omitempty"` // of a ring table
	Findings finding.List `json:"findings"`
}

// WriteFindings shows findings to people on stderr, or to programs as a document, and
// ends with found on an error; if strict, on a warning too. If nothing is wrong, people
// read the sentence good, unless it is empty.
func (t *Terminal) WriteFindings(l FindingList, f Format, strict bool, good string) error {
	l.Header, l.Findings = NewHeader("FindingList"), EmptyNotNull(l.Findings)
	if f.IsDocument() {
		if err := t.WriteDocument(f, l); err != nil {
			return err
		}
	} else {
		t.Report(l.Findings)
	}
	switch {
	case l.Findings.HasErrors(), strict && l.Findings.MoreThanNotes():
		return Found()
	case good != "" && !f.IsDocument() && !l.Findings.MoreThanNotes():
		t.Say("%s", good)
	}
	return nil
}

// Report prints findings with their remedies, as [finding.List.ForPeople] has them. Notes
// are left out where quiet is asked for.
func (t *Terminal) Report(findings finding.List) {
	t.report(t.Err, t.Screen.ColorErr, "", findings)
}

// Open prints findings as [Terminal.Report] does, as part of the result: below a line of
// it, and so indented.
func (t *Terminal) Open(findings finding.List) {
	t.report(t.Out, t.Screen.ColorOut, "      ", findings)
}

func (t *Terminal) report(w io.Writer, color bool, indent string, findings finding.List) {
	for _, f := range findings.ForPeople() {
		if !t.Quiet || f.Severity != finding.Note {
			text := t.Screen.plain(shell.Printable(f.String() + "\n  remedy: " + f.Remedy))
			if color {
				text = paintSeverity(text)
			}
			fmt.Fprintln(w, indent+strings.ReplaceAll(text, "\n", "\n"+indent))
		}
	}
}
