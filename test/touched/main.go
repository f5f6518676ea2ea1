// Touched prints which of the stages that .ci/run does not always run in full a change touches, a line each, with what to pass on:
//
//	vm
//	mutations pkg/cdi internal/node
//
//	go run ./test/touched [BASE]
//
// BASE is the last commit that passed in full. Without one, or if it is not an ancestor of HEAD or more than a hundred commits old,
// every stage is touched, and so it is by a path that the table does not know.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The stages. The mutations have the directories of the fixes behind them, or nothing for all.
const (
	vm        = "vm"     // every boot of the package, in place of one
	lab       = "vm-lab" // every machine of the lab, in place of one
	bench     = "bench-smoke"
	mutations = "mutations"
)

// paths are the stages that a change below each path touches, with a slash at the end of a directory. The longest path counts.
// Mutations are those of the directory itself and of the tests beside it: [mutated].
//
//nolint:gochecknoglobals // a table
var paths = map[string][]string{
	".ci/":     all(),
	"Makefile": all(),
	"go.mod":   all(),
	"go.sum":   all(),

	"cmd/":                 {vm, lab, bench, mutations},
	"cmd/lpuctl-dra/":      {},
	"cmd/lpuctl-top/":      {mutations},
	"internal/":            {vm, lab, bench, mutations},
	"pkg/":                 {vm, lab, bench, mutations},
	"internal/dra/driver/": {bench, mutations}, // lpuctl is built without it
	"internal/dra/plan/":   {bench, mutations},
	"internal/top/":        {mutations},
	"systemd/":             {vm},
	"testdata/":            {lab},

	"packaging/":         {vm},
	"packaging/check/":   {},
	"packaging/helm/":    {},
	"packaging/image/":   {},
	"packaging/man/":     {},
	"packaging/modules/": {},

	"test/allocation/": {},
	"test/await/":      {},
	"test/bare/":       {},
	"test/bench/":      {bench},
	"test/bench-dra/":  {},
	"test/broken/":     {},
	"test/chart/":      {},
	"test/docs/":       {},
	"test/dra/":        {},
	"test/e2e/":        {},
	"test/golden/":     {},
	"test/killer/":     {},
	"test/libraries/":  {},
	"test/long/":       {},
	"test/machines/":   {},
	"test/mutation/":   {mutations},
	"test/hostile/":    {},
	"test/plant/":      {},
	"test/report/":     {},
	"test/scripts/":    {},
	"test/touched/":    {},
	"test/vm/":         {vm, lab},
	"test/vm/guest/":   {vm},
	"test/vm/lab/":     {lab},
	"test/vm/main.go":  {vm},

	".editorconfig":   {},
	".github/":        {},
	".gitignore":      {},
	".golangci.yml":   {},
	"CHANGELOG.md":    {},
	"CONTRIBUTING.md": {},
	"LICENSE":         {},
	"README.md":       {},
	"SECURITY.md":     {},
	"docs/":           {},
	"examples/":       {},
}

// all are the stages when everything is touched.
func all() []string { return []string{bench, mutations, vm, lab} }

func main() {
	base := ""
	if len(os.Args) > 1 {
		base = os.Args[1]
	}
	changed, err := since(base, 100)
	var stages map[string][]string
	if err == nil {
		stages, err = touched(changed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "touched: everything, because", err)
		stages = everything()
	}
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		fmt.Println(strings.Join(append([]string{stage}, stages[stage]...), " "))
	}
}

func everything() map[string][]string {
	stages := map[string][]string{}
	for _, stage := range all() {
		stages[stage] = nil
	}
	return stages
}

// since returns the paths that differ from a commit. The error says why that commit is no base: for one, if more than so many commits
// followed on it.
func since(base string, commits int) ([]string, error) {
	if base == "" {
		return nil, errors.New("no commit is known that passed in full")
	}
	if _, err := git("merge-base", "--is-ancestor", base, "HEAD"); err != nil {
		return nil, fmt.Errorf("the history does not have %s", base)
	}
	lines, err := git("rev-list", "--count", base+"..HEAD")
	if err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(lines[0]); err != nil || n > commits {
		return nil, fmt.Errorf("%s is %s commits old", base, lines[0])
	}
	changed, err := git("diff", "--name-only", "--no-renames", base)
	if err != nil {
		return nil, err
	}
	added, err := git("ls-files", "--others", "--exclude-standard")
	return append(changed, added...), err
}

// git returns the lines that git prints.
func git(args ...string) ([]string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return slices.Collect(strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == '\n' })), nil
}

// touched returns the stages that changed paths touch, with what is passed on to each. The error says that the table does not know a path.
func touched(changed []string) (map[string][]string, error) {
	stages, unnoticed := map[string][]string{}, []string{}
	for _, path := range changed {
		row, ok := rowOf(path)
		if !ok {
			return nil, fmt.Errorf("no row of test/touched has %s", path)
		}
		for _, stage := range paths[row] {
			if stage != mutations {
				stages[stage] = nil
				continue
			}
			unnoticed = append(unnoticed, mutated(path))
		}
	}
	if len(unnoticed) > 0 {
		stages[mutations] = nil
	}
	if slices.Sort(unnoticed); len(unnoticed) > 0 && unnoticed[0] != "" {
		stages[mutations] = slices.Compact(unnoticed)
	}
	return stages, nil
}

// rowOf returns the longest path of the table that a path is, or is below.
func rowOf(path string) (row string, ok bool) {
	for p := range paths {
		below := p == path || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
		if below && (!ok || len(p) > len(row)) {
			row, ok = p, true
		}
	}
	return row, ok
}

// mutated returns the directory whose fixes a change of a path may have made unnoticed, and "" for all: the directory of a source or of
// a test, and for a list of mutations that of its fixes.
func mutated(path string) string {
	if name, found := strings.CutPrefix(path, "test/mutation/"); found {
		list := strings.TrimSuffix(name, ".go")
		if !strings.Contains(list, ".") { // how all are tried
			return ""
		}
		return strings.ReplaceAll(list, ".", "/")
	}
	dir, _, _ := strings.Cut(filepath.Dir(path), "/testdata")
	if !strings.Contains(dir, "/") { // a file of the build
		return ""
	}
	return dir
}
