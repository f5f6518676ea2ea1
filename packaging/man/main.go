// man writes the manual pages of lpuctl into a directory: one of each command, made of what `lpuctl help-tree`
// says, and those that are written by hand. In those, the lines `.\" COMMANDS` and `.\" OPTIONS` stand for the
// commands and the global options.
//
// It reads the help from the program itself, because package main cannot be imported, and writes mdoc itself,
// because cobra's own generator would bring two modules into go.mod and pages that mandoc warns of.
//
// Usage: lpuctl help-tree | man DIR PAGE...
// Without PAGE the program's own page is made of its help, too.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// page is the help of a command, as `lpuctl help-tree` prints it.
type page struct {
	Path, Usage, Short, Long, Example string
	Flags                             []flag
	Commands                          []page
	Program                           string // that the command becomes, or is though it has commands
}

type flag struct{ Name, Shorthand, Value, Usage, Default, Variable string }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: lpuctl help-tree | man DIR PAGE...")
		os.Exit(2)
	}
	if err := write(os.Stdin, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(help io.Reader, dir string, byHand []string) error {
	var root page
	if err := json.NewDecoder(help).Decode(&root); err != nil {
		return err
	}
	date, err := buildDate()
	if err != nil {
		return err
	}
	if len(byHand) == 0 {
		return writeCommand(dir, date, "lpuctl", root)
	}
	for _, c := range root.Commands {
		if c.Program != "" { // the package of that program has the page, by the same name
			continue
		}
		if err := writeCommand(dir, date, root.Path, c); err != nil {
			return err
		}
	}
	for _, name := range byHand {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		filled := strings.NewReplacer(
			".\\\" DATE\n", ".Dd "+date+"\n",
			".\\\" COMMANDS\n", commandList(root),
			".\\\" OPTIONS\n", optionList(root.Flags),
		).Replace(string(text))
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(filled), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// buildDate is the date of the source, so that equal sources make equal pages.
func buildDate() (string, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC().Format("January 2, 2006"), nil
}

func writeCommand(dir, date, parent string, p page) error {
	file := filepath.Join(dir, pageName(p.Path)+".8")
	if err := os.WriteFile(file, []byte(render(date, parent, p)), 0o644); err != nil {
		return err
	}
	for _, c := range p.Commands {
		if err := writeCommand(dir, date, p.Path, c); err != nil {
			return err
		}
	}
	return nil
}

func pageName(path string) string { return strings.ReplaceAll(path, " ", "-") }

func render(date, parent string, p page) string {
	var b strings.Builder
	name := pageName(p.Path)
	fmt.Fprintf(&b, ".\\\" Made of the help of the command: do not edit.\n.Dd %s\n.Dt %s 8\n.Os lpuctl\n", date, strings.ToUpper(name))
	fmt.Fprintf(&b, ".Sh NAME\n.Nm %s\n.Nd %s\n", name, argument(p.Short))
	b.WriteString(".Sh SYNOPSIS\n" + synopsis(p))
	b.WriteString(".Sh DESCRIPTION\n" + prose(cmp.Or(p.Long, p.Short+".")))
	if len(p.Commands) > 0 {
		b.WriteString(".Pp\nThe commands are:\n" + commandList(p))
	}
	if len(p.Flags) > 0 {
		b.WriteString(".Pp\nThe options are:\n" + optionList(p.Flags))
	}
	b.WriteString(".Pp\nGlobal options, exit codes and files are described in\n.Xr lpuctl 8 .\n")
	if p.Example != "" {
		b.WriteString(".Sh EXAMPLES\n" + literal(p.Example))
	}
	b.WriteString(".Sh SEE ALSO\n")
	if parent != "lpuctl" {
		fmt.Fprintf(&b, ".Xr lpuctl 8 ,\n.Xr %s 8\n", pageName(parent))
	} else {
		b.WriteString(".Xr lpuctl 8\n")
	}
	return b.String()
}

func synopsis(p page) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".Nm %s\n", p.Path)
	if len(p.Commands) > 0 && p.Program == "" {
		return b.String() + ".Ar command\n"
	}
	arguments := strings.TrimPrefix(p.Usage, p.Path)
	if rest, ok := strings.CutSuffix(arguments, " [flags]"); ok {
		arguments = rest
		b.WriteString(".Op Ar options\n")
	}
	for a := range strings.FieldsSeq(arguments) {
		if optional := strings.Trim(a, "[]"); optional != a {
			fmt.Fprintf(&b, ".Op Ar %s\n", optional)
		} else {
			fmt.Fprintf(&b, ".Ar %s\n", a)
		}
	}
	return b.String()
}

// commandList names the commands below a command, and where each is described.
func commandList(p page) string {
	var b strings.Builder
	b.WriteString(".Bl -tag -width Ds\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, ".It Xr %s 8\n%s.\n", pageName(c.Path), escape(c.Short))
	}
	return b.String() + ".El\n"
}

func optionList(flags []flag) string {
	var b strings.Builder
	b.WriteString(".Bl -tag -width Ds\n")
	for _, f := range flags {
		b.WriteString(".It ")
		if f.Shorthand != "" {
			fmt.Fprintf(&b, "Fl %s , ", f.Shorthand)
		}
		fmt.Fprintf(&b, "Fl \\-%s", escape(f.Name))
		if f.Value != "" {
			fmt.Fprintf(&b, " Ar %s", argument(f.Value))
		}
		b.WriteString("\n" + prose(strings.ToUpper(f.Usage[:1])+f.Usage[1:]+"."))
		if f.Default != "" {
			fmt.Fprintf(&b, "The default is\n.Ql %s .\n", argument(f.Default))
		}
		if f.Variable != "" {
			fmt.Fprintf(&b, "The environment variable\n.Ev %s\nstands for it.\n", f.Variable)
		}
	}
	return b.String() + ".El\n"
}

// prose turns help into text: paragraphs are filled, indented lines stay as they are.
func prose(text string) string {
	var b strings.Builder
	for i, block := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 && !strings.HasPrefix(block, " ") {
			b.WriteString(".Pp\n")
		}
		lines := strings.Split(block, "\n")
		head := 0
		for head < len(lines) && !strings.HasPrefix(lines[head], " ") {
			head++
		}
		if head > 0 {
			// mdoc wants each sentence to begin a line, to space them.
			filled := strings.ReplaceAll(strings.Join(lines[:head], " "), ". ", ".\n")
			b.WriteString(escape(filled) + "\n")
		}
		if head < len(lines) {
			b.WriteString(literal(strings.Join(lines[head:], "\n")))
		}
	}
	return b.String()
}

func literal(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return ".Bd -literal -offset indent\n" + escape(strings.Join(lines, "\n")) + "\n.Ed\n"
}

// argument keeps words on a macro's line from being read as macros, which are of two or three letters.
func argument(text string) string {
	words := strings.Split(escape(text), " ")
	for i, w := range words {
		if len(w) == 2 || len(w) == 3 {
			words[i] = `\&` + w
		}
	}
	return strings.Join(words, " ")
}

// escape keeps roff from reading text as requests, and what is typed from being prettified: a reader copies it.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
