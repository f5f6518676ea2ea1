package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTableIsComplete: the table knows each path of the repository, each row has a path, and .ci/run knows each stage.
func TestTableIsComplete(t *testing.T) {
	t.Chdir("../..")
	files, err := git("ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(paths)
	for _, path := range files {
		row, ok := rowOf(path)
		if !ok {
			t.Errorf("no row has %s", path)
		}
		delete(unused, row)
	}
	for row := range unused {
		t.Errorf("no path is of the row %s", row)
	}
	run, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range all() {
		if !strings.Contains(string(run), "touched "+stage) {
			t.Errorf(".ci/run does not ask for %s", stage)
		}
	}
	for _, stages := range paths {
		for _, stage := range stages {
			if !slices.Contains(all(), stage) {
				t.Errorf("%s is not a stage", stage)
			}
		}
	}
}

// with are stages, and the mutations of directories.
func with(dirs string, stages ...string) map[string][]string {
	all := map[string][]string{mutations: strings.Fields(dirs)}
	for _, stage := range stages {
		all[stage] = nil
	}
	return all
}

func TestTouched(t *testing.T) {
	for name, c := range map[string]struct {
		changed string
		want    map[string][]string // nil: everything
	}{
		"nothing":           {"", map[string][]string{}},
		"a page":            {"docs/health.md", map[string][]string{}},
		"a package":         {"pkg/cdi/lock.go pkg/cdi/testdata/v1", with("pkg/cdi", vm, lab, bench)},
		"a test and a list": {"internal/dra/driver/files_test.go test/mutation/internal.dra.go", with("internal/dra internal/dra/driver", bench)},
		"how it is mutated": {"test/mutation/pkg.cdi.go test/mutation/main.go", with("")},
		"one boot":          {"test/vm/lab/bus/bus_test.go", map[string][]string{lab: nil}},
		"an unknown path":   {"docs/health.md new/thing", nil},
		"a path like a row": {"README.md.orig", nil},
		"the stages":        {".ci/stages", with("", vm, lab, bench)},
	} {
		got, err := touched(strings.Fields(c.changed))
		if (err != nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != nil && !maps.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s touches %v, want %v", name, got, c.want)
		}
	}
}

// TestBase: without a base that is near everything is touched.
func TestBase(t *testing.T) {
	t.Chdir(t.TempDir())
	must := func(args ...string) string {
		t.Helper()
		lines, err := git(append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, " ")
	}
	must("init", "-q")
	must("commit", "-q", "--allow-empty", "-m", "first")
	first := must("rev-parse", "HEAD")
	if err := os.WriteFile("new", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"", "0123456789012345678901234567890123456789"} {
		if _, err := since(base, 3); err == nil {
			t.Errorf("%q is a base", base)
		}
	}
	if changed, err := since(first, 3); err != nil || !slices.Equal(changed, []string{"new"}) {
		t.Errorf("%v, %v", changed, err)
	}
	for range 3 {
		must("commit", "-q", "--allow-empty", "-m", "more")
	}
	if _, err := since(first, 3); err != nil {
		t.Error(err)
	}
	must("commit", "-q", "--allow-empty", "-m", "too many")
	if _, err := since(first, 3); err == nil {
		t.Error("a base that is too old is a base")
	}
}
