package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Terminal is where a command speaks, and how much of it people want to read.
type Terminal struct {
	Program   string // that complains; "": lpuctl
	Out, Err  io.Writer
	Quiet     bool
	NoHeaders bool   // of the commands that print tables
	Color     string // --color
	Screen    Screen
}

// Complain prints an error the way all of them are printed: what is wrong, then what to
// do.
func (t *Terminal) Complain(err error) {
	if faults, ok := errors.AsType[faultyConfig](err); ok {
		t.Report(finding.List(faults))
		return
	}
	fmt.Fprintf(t.Err, "%s: %s\n", cmp.Or(t.Program, "lpuctl"), t.Screen.plain(shell.Printable(err.Error())))
	if remedy := RemedyFor(err); remedy != "" {
		fmt.Fprintf(t.Err, "  remedy: %s\n", t.Screen.plain(shell.Printable(remedy)))
	}
}

// Say tells people what was done, unless they asked for quiet.
func (t *Terminal) Say(format string, args ...any) {
	if !t.Quiet {
		fmt.Fprintln(t.Err, t.Screen.plain(fmt.Sprintf(format, args...)))
	}
}
