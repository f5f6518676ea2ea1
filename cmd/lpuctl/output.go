package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// format is how a command shows its result. Every result has one set of json tags: YAML derives from it,
// and a table is a view of it.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	formatName  format = "name"
	formatArgs  format = "args" // options of podman, nerdctl and docker
	formatNPD   format = "npd"  // a line and exit codes for node-problem-detector
)

// isDocument tells a format that programs read as a document.
func (f format) isDocument() bool { return f == formatJSON || f == formatYAML }

// formatFlag adds -o/--format with the formats the command has; the first is the default.
func (a *app) formatFlag(cmd *cobra.Command, f *format, have ...format) {
	names := make([]string, len(have))
	for i, h := range have {
		names[i] = string(h)
	}
	*f = have[0]
	cmd.Flags().VarP(&formatValue{f, have}, "format", "o", "print as "+strings.Join(names, ", "))
	complete(cmd, "format", names...)
	if have[0] == formatTable {
		cmd.Flags().BoolVar(&a.noHeaders, "no-headers", false, "print tables without their first line")
	}
}

// formatValue refuses what is not among the command's formats.
type formatValue struct {
	f    *format
	have []format
}

func (v *formatValue) String() string { return string(*v.f) }
func (v *formatValue) Type() string   { return "FORMAT" }
func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.have, format(s)) {
		return fmt.Errorf("expected one of %v", v.have)
	}
	*v.f = format(s)
	return nil
}

// header is how every document begins.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func newHeader(kind string) header { return header{discovery.APIVersion, kind} }

// writeDocument writes a result as JSON or YAML.
func writeDocument(w io.Writer, f format, document any) error {
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if f == formatYAML {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
	}
	_, err = w.Write(data)
	return err
}

// printable replaces the control characters of what files and names say, which would steer the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// writeTable writes rows in columns, below their names if they have any. An empty cell is a dash, so that columns can be
// cut by scripts.
func (a *app) writeTable(columns []string, rows [][]string) error {
	tw := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if len(columns) > 0 && !a.noHeaders {
		fmt.Fprintln(tw, strings.Join(columns, "\t"))
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = cmp.Or(printable(cell), "-")
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// progress shows people how much of a long job is done.
type progress struct {
	out   io.Writer
	what  string
	next  time.Time // when it is shown again
	shown bool
}

// progress begins a job. It is shown on a terminal only, unless people asked for quiet, and from the third second on.
func (a *app) progress(what string) *progress {
	p := &progress{out: io.Discard, what: what, next: time.Now().Add(2 * time.Second)}
	if !a.quiet && isTerminal(a.err) {
		p.out = a.err
	}
	return p
}

func (p *progress) show(done, total int) {
	if now := time.Now(); !now.Before(p.next) {
		fmt.Fprintf(p.out, "\r%d of %d %s", done, total, p.what)
		p.next, p.shown = now.Add(100*time.Millisecond), true
	}
}

// clear takes it away again.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// emptyNotNull makes a missing list an empty one in JSON.
func emptyNotNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// optional is what the kernel says, or nothing.
func optional[T any](value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(*value)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// quoted are words as they are typed in a shell.
func quoted(words ...string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	shown := make([]string, len(words))
	for i, word := range words {
		shown[i] = word
		if word == "" || strings.Trim(word, plain) != "" {
			shown[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(shown, " ")
}
