package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// record is what one command did, section by section.
type record []section

type section struct{ name, text string }

// The sections beside the command and the files that it wrote and removed.
const (
	exitSection     = "exit"
	documentSection = "document" // stdout, where it is for programs
	stdoutSection   = "stdout"
	stderrSection   = "stderr"
)

// bytes is the form of a record in a file: names of sections at the start of lines, texts behind a tab.
func (r record) bytes() []byte {
	var b bytes.Buffer
	for _, s := range r {
		if s.text == "" && !strings.HasPrefix(s.name, "file ") {
			continue
		}
		fmt.Fprintln(&b, s.name)
		for line := range strings.Lines(s.text) {
			b.WriteString("\t" + line)
		}
		if s.text != "" && !strings.HasSuffix(s.text, "\n") {
			b.WriteString("\n\t(no newline at the end)\n")
		}
	}
	return b.Bytes()
}

// parse reads the sections of a record by name.
func parse(data string) map[string]string {
	sections, name := map[string]string{}, ""
	for line := range strings.Lines(data) {
		if text, indented := strings.CutPrefix(line, "\t"); indented {
			sections[name] += text
			continue
		}
		name = strings.TrimSpace(line)
		sections[name] = ""
	}
	return sections
}

// forPeople tells whether a section holds words, which scripts do not read.
func forPeople(name string) bool { return name == stdoutSection || name == stderrSection }

// errDiffers says that something differs on which scripts rely.
var errDiffers = errors.New("something differs on which scripts rely")

// compare prints how two runs differ: first on what scripts rely on, then in words.
func compare(out io.Writer, oldDir, newDir string, words bool) error {
	was, err := readRun(oldDir)
	if err != nil {
		return err
	}
	is, err := readRun(newDir)
	if err != nil {
		return err
	}
	if was[aboutFile] != is[aboutFile] {
		return fmt.Errorf("%s, %s: made in different circumstances: %q, %q", oldDir, newDir, was[aboutFile], is[aboutFile])
	}
	delete(was, aboutFile)
	delete(is, aboutFile)
	var scripts, people []string // diffs, a file each
	onlyWords := 0
	all := names(was, is)
	for _, name := range all {
		s, p := compareRecords(name, was, is)
		scripts, people = appendIf(scripts, s), appendIf(people, p)
		if s == "" && p != "" {
			onlyWords++
		}
	}
	fmt.Fprint(out, strings.Join(scripts, ""))
	if words {
		fmt.Fprint(out, strings.Join(people, ""))
	}
	fmt.Fprintf(out, "%d of %d files differ in documents, specs or exit codes\n", len(scripts), len(all))
	fmt.Fprintf(out, "%d of %d files differ only in words for people\n", onlyWords, len(all))
	if len(scripts) > 0 {
		return errDiffers
	}
	return nil
}

// appendIf appends a text if there is any.
func appendIf(list []string, text string) []string {
	if text == "" {
		return list
	}
	return append(list, text)
}

// compareRecords are the differences of one record, for scripts and for people. A record that is new, of a command that
// was not there, hurts no script.
func compareRecords(name string, was, is map[string]string) (scripts, people string) {
	before, after := parse(was[name]), parse(is[name])
	_, known := was[name]
	for _, section := range names(before, after) {
		if section == "command" {
			continue
		}
		d := difference(name, section, before, after)
		if known && !forPeople(section) {
			scripts += d
		} else {
			people += d
		}
	}
	return scripts, people
}

func difference(name, section string, before, after map[string]string) string {
	text, was := before[section]
	now, is := after[section]
	if was == is && text == now {
		return ""
	}
	title := func(side string, has bool) string {
		if !has {
			return "/dev/null"
		}
		return fmt.Sprintf("%s/%s (%s)", side, name, section)
	}
	from, to := title("OLD", was), title("NEW", is)
	if d := diff.Diff(from, []byte(text), to, []byte(now)); len(d) > 0 {
		return string(d)
	}
	return fmt.Sprintf("diff %s %s\n", from, to) // an empty file on one side
}

// names are those in both maps, in order.
func names(a, b map[string]string) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// readRun reads the records of a run by name.
func readRun(dir string) (map[string]string, error) {
	if _, err := os.Stat(filepath.Join(dir, aboutFile)); err != nil {
		return nil, fmt.Errorf("%w: no golden run is there", err)
	}
	return readFiles(dir)
}

// readFiles reads the regular files below a directory by their names there, but not those below directories to skip.
func readFiles(dir string, skip ...string) (map[string]string, error) {
	files, tree := map[string]string{}, os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(skip, d.Name()) {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		files[path] = string(data)
		return err
	})
	return files, err
}
