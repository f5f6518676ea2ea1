// report reads `go test -json` from stdin and prints what people want to know of it: each package as it ends, all that
// failing tests said, every skipped test with its reason, how many there were of each, and which ten were slowest.
//
// With CI set in the environment a skipped test is a failure: what CI does not run nobody runs. With SKIPS set, which is the
// path of a list, a skipped test is a failure unless the list has it, and so is a test of the list that is not skipped.
// A line of the list is
//
//	WHO PACKAGE TEST # REASON
//
// where WHO is root, user (anybody else) or both.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string
	Elapsed                       float64
}

func (e *event) key() string { return e.Package + " " + e.Test }

func main() {
	may, err := mayBeSkipped()
	failed := false
	if err == nil {
		failed, err = report(os.Stdin, os.Stdout, may)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		failed = true
	}
	if failed {
		os.Exit(1)
	}
}

// skips are tests that may be skipped, as "package test"; nil means that all may.
type skips map[string]bool

func mayBeSkipped() (skips, error) {
	path := os.Getenv("SKIPS")
	if path == "" {
		if os.Getenv("CI") != "" {
			return skips{}, nil
		}
		return nil, nil
	}
	list, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	who := "user"
	if os.Getuid() == 0 {
		who = "root"
	}
	may, err := readSkips(string(list), who)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return may, nil
}

// readSkips takes from a list what concerns one kind of user.
func readSkips(list, who string) (skips, error) {
	may := skips{}
	for line := range strings.Lines(list) {
		entry, reason, _ := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 || !slices.Contains([]string{"root", "user", "both"}, fields[0]) || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%q is not WHO PACKAGE TEST # REASON", strings.TrimSpace(line))
		}
		if fields[0] == who || fields[0] == "both" {
			may[fields[1]+" "+fields[2]] = true
		}
	}
	return may, nil
}

func report(in io.Reader, out io.Writer, may skips) (failed bool, err error) {
	t := tally{out: out, said: map[string]string{}, skipped: skips{}, counts: map[string]int{}}
	events := json.NewDecoder(in)
	for {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return true, err
		}
		t.take(e)
	}
	t.unended("")
	t.showSlowest()
	if may != nil {
		t.failed = !may.hold(out, t.skipped) || t.failed
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", t.counts["pass"], t.counts["fail"], t.counts["skip"])
	for _, test := range t.failures { // last: who sees only the end of all this wants them
		fmt.Fprintln(out, "failed:", test)
	}
	return t.failed, nil
}

// tally is what the events so far tell.
type tally struct {
	out      io.Writer
	said     map[string]string // what a test or package that has not ended wrote, by "package test"
	skipped  skips
	counts   map[string]int // tests by how they ended: pass, skip or fail
	slow     []event        // the ends of tests that took a second or more
	failures []string       // tests that failed: "package test"
	failed   bool           // a test, a package or a build
}

// take adds an event.
func (t *tally) take(e event) {
	switch e.Action {
	case "output":
		t.said[e.key()] += e.Output
	case "build-output":
		fmt.Fprint(t.out, e.Output)
	case "build-fail":
		t.failed = true
	case "pass", "skip", "fail":
		t.end(e)
	}
}

// end takes the event that ends a test, or a package if it names no test.
func (t *tally) end(e event) {
	skipped := e.Action == "skip" && e.Test != ""
	if e.Test == "" {
		fmt.Fprintf(t.out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	} else {
		t.counts[e.Action]++
		if e.Elapsed >= 1 && !strings.Contains(e.Test, "/") {
			t.slow = append(t.slow, e)
		}
	}
	if skipped {
		t.skipped[e.key()] = true
	}
	if e.Action == "fail" {
		t.failed = true
		if e.Test != "" {
			t.failures = append(t.failures, e.key())
		}
	}
	if e.Action == "fail" || skipped {
		fmt.Fprint(t.out, withoutProgress(t.said[e.key()]))
	}
	delete(t.said, e.key())
	if e.Test == "" {
		t.unended(e.Package + " ")
	}
}

// showSlowest prints the ten tests that took longest. Their times are by the clock: tests run beside others.
func (t *tally) showSlowest() {
	slices.SortFunc(t.slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range t.slow[:min(10, len(t.slow))] {
		fmt.Fprintf(t.out, "%7.1f s  %s %s\n", e.Elapsed, e.Package, e.Test)
	}
}

// unended prints what tests said that never ended: the process ended before them, and one of them may say why. Their keys begin with
// prefix, which is "" if not even packages ended.
func (t *tally) unended(prefix string) {
	for _, key := range slices.Sorted(maps.Keys(t.said)) {
		if strings.HasPrefix(key, prefix) {
			fmt.Fprintf(t.out, "%s did not end\n%s", key, withoutProgress(t.said[key]))
			delete(t.said, key)
			t.failed = true
		}
	}
}

// hold tells whether just those tests were skipped that may be, and names the others.
func (may skips) hold(out io.Writer, skipped skips) bool {
	for _, key := range slices.Sorted(maps.Keys(skipped)) {
		if !may[key] {
			fmt.Fprintf(out, "%s was skipped and has to run here: install what it names\n", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(may)) {
		if !skipped[key] {
			fmt.Fprintf(out, "%s was not skipped: take it off the list\n", key)
		}
	}
	return maps.Equal(may, skipped)
}

// withoutProgress leaves out the lines that say that a test runs.
func withoutProgress(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "=== ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
