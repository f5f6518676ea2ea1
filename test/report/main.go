// report reads `go test -json` from stdin and prints what people want to know of it: each package, all that
// failing tests said, every skipped test with its reason, and how many there were of each. With CI set in the environment
// a skipped test is a failure: what CI does not run nobody runs.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string
	Elapsed                       float64
}

func main() {
	failed, err := report(os.Stdin, os.Stdout, os.Getenv("CI") != "")
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		failed = true
	}
	if failed {
		os.Exit(1)
	}
}

func report(in io.Reader, out io.Writer, all bool) (failed bool, err error) {
	said := map[string]string{} // by package and test
	counts := map[string]int{}
	events := json.NewDecoder(in)
	for {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return true, err
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			said[key] += e.Output
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			failed = true
		case "pass", "skip", "fail":
			failed = failed || e.Action == "fail"
			if e.Test == "" {
				fmt.Fprintf(out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
			} else {
				counts[e.Action]++
			}
			if e.Action == "fail" || e.Action == "skip" && e.Test != "" {
				fmt.Fprint(out, withoutProgress(said[key]))
			}
			delete(said, key)
		}
	}
	if all && counts["skip"] > 0 {
		failed = true
		fmt.Fprintln(out, "on CI every test has to run: install what the skipped ones name")
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
	return failed, nil
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
