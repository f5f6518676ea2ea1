package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRender holds a page with all that is awkward against what mandoc and man agree on.
func TestRender(t *testing.T) {
	got := render("November 21, 2026", "lpuctl ring", page{
		Path: "lpuctl ring try", Usage: "lpuctl ring try [FILE] [flags]", Short: "Try It, or No",
		Long:    "try reads. It tries.\n.starts with a dot\n\nKinds:\n  a-b   'quoted' \\n\n\n  alone",
		Example: "  lpuctl ring try -o json | jq '.a'",
		Flags:   []flag{{Name: "with-it", Shorthand: "w", Value: "FILE", Usage: "use it", Default: "x", Variable: "LPUCTL_IT"}},
	})
	want := `.\" Made of the help of the command: do not edit.
.Dd November 21, 2026
.Dt LPUCTL-RING-TRY 8
.Os lpuctl
.Sh NAME
.Nm lpuctl-ring-try
.Nd \&Try \&It, \&or \&No
.Sh SYNOPSIS
.Nm lpuctl ring try
.Op Ar options
.Op Ar FILE
.Sh DESCRIPTION
try reads.
It tries.
\&.starts with a dot
.Pp
Kinds:
.Bd -literal -offset indent
a\-b   \(aqquoted\(aq \en
.Ed
.Bd -literal -offset indent
alone
.Ed
.Pp
The options are:
.Bl -tag -width Ds
.It Fl w , Fl \-with\-it Ar FILE
Use it.
The default is
.Ql x .
The environment variable
.Ev LPUCTL_IT
stands for it.
.El
.Pp
Global options, exit codes and files are described in
.Xr lpuctl 8 .
.Sh EXAMPLES
.Bd -literal -offset indent
lpuctl ring try \-o json | jq \(aq.a\(aq
.Ed
.Sh SEE ALSO
.Xr lpuctl 8 ,
.Xr lpuctl-ring 8
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestEscapeKeepsTextFromBeingARequest(t *testing.T) {
	if got := escape(".x\n'y"); got != "\\&.x\n\\(aqy" {
		t.Errorf("got %q", got)
	}
}

// TestOnePageOfAProgram: the page of a program is in its own package, and not in that of the command that becomes it: two packages with
// one file cannot be installed together.
func TestOnePageOfAProgram(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "0")
	dir := t.TempDir()
	help := `{"path": "lpuctl", "commands": [{"path": "lpuctl list", "short": "List"},
		{"path": "lpuctl dra", "short": "Run", "program": "lpuctl-dra"}]}`
	byHand := filepath.Join(dir, "hand")
	if err := os.WriteFile(byHand, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(strings.NewReader(help), dir, []string{byHand}); err != nil {
		t.Fatal(err)
	}
	if pages, _ := filepath.Glob(filepath.Join(dir, "*.8")); len(pages) != 1 || filepath.Base(pages[0]) != "lpuctl-list.8" {
		t.Error(pages)
	}
}
