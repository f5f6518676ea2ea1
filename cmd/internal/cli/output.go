package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// Format is how a command shows its result. Every result has one set of json tags: YAML
// derives from it, and a table is a view of it.
type Format string

// The formats.
const (
	FormatTable Format = "table"
	FormatWide  Format = "wide"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
	FormatName  Format = "name"
	FormatArgs  Format = "args" // options of podman, nerdctl and docker
	FormatCSV   Format = "csv"
	FormatNPD   Format = "npd" // a line and exit codes for node-problem-detector
	FormatJUnit Format = "junit"
)

// IsDocument tells a format that programs read as a document.
func (f Format) IsDocument() bool { return f == FormatJSON || f == FormatYAML }

// FormatFlag adds -o/--format with the formats the command has; the first is the default.
func (t *Terminal) FormatFlag(cmd *cobra.Command, f *Format, have ...Format) {
	if have == nil {
		have = []Format{FormatTable, FormatJSON, FormatYAML}
	}
	names := Each(have, func(h Format) string { return string(h) })
	*f = have[0]
	cmd.Flags().VarP(&formatValue{f, have}, "format", "o", "print as "+strings.Join(names, ", "))
	Complete(cmd, "format", names...)
	if have[0] == FormatTable {
		cmd.Flags().BoolVar(&t.NoHeaders, "no-headers", false, "print tables without their first line")
	}
}

// formatValue refuses what is not among the command's formats.
type formatValue struct {
	f    *Format
	have []Format
}

// String is the format, as pflag wants it.
func (v *formatValue) String() string { return string(*v.f) }

// Type is the word for a value in helps.
func (v *formatValue) Type() string { return "FORMAT" }

// Set takes a format that the command has.
func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.have, Format(s)) {
		return fmt.Errorf("expected one of %v", v.have)
	}
	*v.f = Format(s)
	return nil
}

// Header is how every document begins.
type Header = statefile.Header

// NewHeader is the header of a document of a kind.
func NewHeader(kind string) Header { return statefile.NewHeader(kind) }

// MarshalDocument is a result as JSON or YAML.
func MarshalDocument(f Format, document any) ([]byte, error) {
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, err
	}
	data = append(data, '\n')
	if f == FormatYAML {
		return yaml.JSONToYAML(data)
	}
	return data, nil
}

// WriteDocument writes a result as JSON or YAML.
func (t *Terminal) WriteDocument(f Format, document any) error {
	data, err := MarshalDocument(f, document)
	if err == nil {
		_, err = t.Out.Write(data)
	}
	return err
}

// WriteLines writes lines for scripts.
func (t *Terminal) WriteLines(lines ...string) error {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	_, err := io.WriteString(t.Out, text.String())
	return err
}

// Progress shows people how much of a long job is done.
type Progress struct {
	Out   io.Writer
	What  string
	Next  time.Time // when it is shown again
	shown bool
}

// Progress begins a job. It is shown on a terminal only, unless people asked for quiet,
// and from the third second on.
func (t *Terminal) Progress(what string) *Progress {
	p := &Progress{Out: io.Discard, What: what, Next: time.Now().Add(2 * time.Second)}
	if !t.Quiet && t.Screen.ErrRedraws {
		p.Out = t.Err
	}
	return p
}

// Show shows how much is done, if it is time.
func (p *Progress) Show(done, total int) {
	if now := time.Now(); !now.Before(p.Next) {
		fmt.Fprintf(p.Out, "\r%d of %d %s", done, total, p.What)
		p.Next, p.shown = now.Add(100*time.Millisecond), true
	}
}

// Clear takes it away again.
func (p *Progress) Clear() {
	if p.shown {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
}

// IsTerminal reports whether people read what is written there.
func IsTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Each is what a function makes of each element of a list. It is never nil.
func Each[T, U any](list []T, of func(T) U) []U {
	made := make([]U, len(list))
	for i, element := range list {
		made[i] = of(element)
	}
	return made
}

// EmptyNotNull makes a missing list an empty one in JSON.
func EmptyNotNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Plural is a number of things: 1 LPU, 2 LPUs.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Optional is what the kernel says, or nothing.
func Optional[T any](value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(*value)
}

// YesNo is a truth in a table.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
