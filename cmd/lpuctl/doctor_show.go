package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/shell"
)

// doctorDocument is what doctor prints for programs.
type doctorDocument struct {
	cli.Header
	*doctor.Diagnosis
}

// show prints a diagnosis, and ends as it is.
func (o *doctorOptions) show(a *app, d *doctor.Diagnosis) error {
	err := o.print(a, d)
	switch {
	case err != nil:
		return err
	case d.NoLPU:
		return cli.NoLPU(a.Root)
	case o.isBad(d):
		return cli.Found()
	}
	return nil
}

// isBad reports whether a diagnosis is exit code 3.
func (o *doctorOptions) isBad(d *doctor.Diagnosis) bool {
	return slices.ContainsFunc(d.Steps, func(s doctor.Step) bool {
		switch s.State {
		case doctor.Broken, doctor.Follows:
			return true
		case doctor.Warned, doctor.Unknown:
			return o.strict
		}
		return false
	})
}

func (o *doctorOptions) print(a *app, d *doctor.Diagnosis) error {
	switch o.format {
	case cli.FormatJSON, cli.FormatYAML:
		return a.WriteDocument(o.format, doctorDocument{cli.NewHeader("Diagnosis"), d})
	case cli.FormatJUnit:
		return d.WriteJUnit(a.Out)
	}
	first, closed := d.First(), 0
	for i := range d.Steps {
		s := &d.Steps[i]
		if s.State == doctor.Follows && !o.open {
			continue // its cause names it
		}
		opened := len(s.Findings)+len(s.Unseen) > 0 && (o.open || s == first)
		fmt.Fprintln(a.Out, shell.Printable(lineOf(s, opened)))
		if opened {
			openStep(a, d, s)
		} else if s.Findings.MoreThanNotes() {
			closed++
		}
	}
	if closed > 0 {
		a.Say("more about a link: lpuctl doctor LINK; about all: lpuctl doctor --all")
	}
	return nil
}

// openStep prints all that was found of a link, and what follows from it.
func openStep(a *app, d *doctor.Diagnosis, s *doctor.Step) {
	a.Open(s.Findings)
	for _, u := range s.Unseen {
		fmt.Fprintf(a.Out, "      %s\n", shell.Printable(u.String()))
	}
	var after []string
	for i := range d.Steps {
		if other := &d.Steps[i]; other.State == doctor.Follows && other.From[0] == s.Link {
			what := other.Says
			if other.Findings.MoreThanNotes() {
				what = cli.Plural(len(other.Findings.ForPeople()), "finding")
			}
			after = append(after, fmt.Sprintf("%s (%s)", other.Link, what))
		}
	}
	if len(after) > 0 {
		fmt.Fprintf(a.Out, "      from this follows: %s\n", strings.Join(after, ", "))
	}
}

// mark stands before a link.
func mark(s doctor.State) string {
	switch s {
	case doctor.Well:
		return "ok"
	case doctor.Absent:
		return "-"
	case doctor.Unknown:
		return "?"
	case doctor.Warned:
		return "warn"
	case doctor.Follows:
		return "->"
	}
	return "FAIL"
}

// lineOf is a link in one line. What is opened below it is not in it.
func lineOf(s *doctor.Step, opened bool) string {
	text := fmt.Sprintf("%-4s  %-11s  ", mark(s.State), s.Link)
	switch {
	case opened:
		return strings.TrimRight(text+s.Says, " ")
	case s.Findings.MoreThanNotes():
		return text + mainReason(s.Findings.ForPeople())
	case s.State == doctor.Unknown:
		return text + s.Unseen[0].String()
	}
	return text + s.Says
}
