// Mutation takes fixes out of the source, one at a time, and wants the test that holds each to fail. The source itself stays as it
// is: go test gets the changed file by -overlay.
//
//	go run ./test/mutation                  # all, or with PART=1/3 in the environment every third from the second on
//	go run ./test/mutation pkg/cdi NAME...  # those whose fix or test is in a directory, and those with these names
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// mutation is a fix that is taken out: in one file of a directory the text of the fix is replaced.
type mutation struct {
	dir          string // of the fix, from the root of the repository
	name         string // what goes wrong without the fix
	in           string // the function of the fix, as "Type.Method", if the directory has its text more than once
	fix, without string
	test         string // that must fail then, by its name or as a regular expression
	pkg          string // of the test, if it is not that of the fix
}

// mutations are the fixes that keep lpuctl right while the node changes. Those of internal/dra are in internal.dra.go, and so on.
func mutations() (all []mutation) {
	for dir, of := range map[string][]mutation{
		"cmd/internal/cli":    cmdInternalCLI(),
		"cmd/lpuctl":          cmdLpuctl(),
		"internal/aside":      internalAside(),
		"internal/certify":    internalCertify(),
		"internal/bundle":     internalBundle(),
		"internal/filelock":   internalFilelock(),
		"internal/isolate":    internalIsolate(),
		"internal/launch":     internalLaunch(),
		"internal/host":       internalHost(),
		"internal/stall":      internalStall(),
		"internal/statefile":  internalStatefile(),
		"internal/uevent":     internalUevent(),
		"internal/watch":      internalWatch(),
		"internal/wholefile":  internalWholefile(),
		"internal/allocate":   internalAllocate(),
		"pkg/cdi":             pkgCdi(),
		"pkg/discovery":       pkgDiscovery(),
		"internal/doctor":     internalDoctor(),
		"internal/dra":        internalDra(),
		"internal/dra/claim":  internalDraClaim(),
		"internal/dra/driver": internalDraDriver(),
		"internal/features":   internalFeatures(),
		"pkg/finding":         pkgFinding(),
		"pkg/health":          pkgHealth(),
		"internal/lease":      append(internalLease(), internalLeaseLedger()...),
		"internal/node":       internalNode(),
		"internal/owner":      internalOwner(),
		"internal/person":     internalPerson(),
		"internal/pods":       internalPods(),
		"internal/proof":      internalProof(),
		"pkg/plugin":          pkgPlugin(),
		"pkg/ring":            pkgRing(),
		"internal/runtimes":   internalRuntimes(),
		"internal/usage":      internalUsage(),
		"internal/top":        internalTop(),
		"cmd/lpuctl-top":      cmdLpuctlTop(),
		"packaging/man":       packagingMan(),
	} {
		for _, m := range of {
			m.dir = dir
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b mutation) int { return cmp.Compare(a.dir, b.dir) })
	return all
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

// run tries the mutations of these names and directories, one on each processor at a time; no name means all. The error says that one
// was not noticed, or could not be tried.
func run(names []string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var (
		tries  sync.WaitGroup
		free   = make(chan struct{}, runtime.NumCPU())
		mu     sync.Mutex // holds failed and out
		failed []error
	)
	part, err := readPart(os.Getenv("PART"))
	if err != nil {
		return err
	}
	for i, m := range mutations() {
		if len(names) == 0 && !part.has(i) {
			continue
		}
		isNamed := func(name string) bool { return name == m.name || name == m.dir || name == m.pkg }
		if len(names) > 0 && !slices.ContainsFunc(names, isNamed) {
			continue
		}
		free <- struct{}{}
		tries.Go(func() {
			defer func() { <-free }()
			err := m.try(filepath.Join(dir, strconv.Itoa(i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
				fmt.Fprintf(out, "NOT NOTICED  %s: %v\n", m.name, err)
			} else {
				fmt.Fprintf(out, "noticed      %s\n", m.name)
			}
		})
	}
	tries.Wait()
	return errors.Join(failed...)
}

// part is every n-th mutation, from number first on.
type part struct{ first, n int }

// readPart reads FIRST/N, where FIRST may be any number. "" is all.
func readPart(text string) (part, error) {
	if text == "" {
		return part{0, 1}, nil
	}
	var p part
	if _, err := fmt.Sscanf(text, "%d/%d", &p.first, &p.n); err != nil || p.n < 1 || p.first < 0 {
		return part{}, fmt.Errorf("PART is %q, not FIRST/N", text)
	}
	return p, nil
}

func (p part) has(i int) bool { return i%p.n == p.first%p.n }

// try runs the test with the mutation, and returns an error unless the test fails. What it needs for that is in dir, which it makes.
func (m *mutation) try(dir string) error {
	file, mutated, err := m.apply()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	real, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	replacement, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {real: replacement}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(replacement, mutated, 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return err
	}
	test := exec.Command("go", "test", "-tags", "dra", "-vet=off", "-overlay", overlay, "-count=1", "-run", "^("+m.test+")$",
		"./"+cmp.Or(m.pkg, m.dir))
	test.Env = append(os.Environ(), "LPUCTL_AWAIT=30s") // for what does not come without the fix
	if m.test == "TestAWorldThatChanges" {              // few of its steps do not meet each fault
		test.Env = append(test.Env, "LPUCTL_LONG=20", "LPUCTL_SEED=1")
	}
	printed, err := test.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s passes without the fix", m.test)
	case !bytes.Contains(printed, []byte("--- FAIL: ")):
		return fmt.Errorf("%s did not run: %s", m.test, printed)
	}
	return nil
}

// apply returns the file that has the fix, and its source without it. The error says that the fix is not in exactly one place.
func (m *mutation) apply() (file string, mutated []byte, err error) {
	files, err := filepath.Glob(filepath.Join(m.dir, "*.go"))
	if err != nil {
		return "", nil, err
	}
	places := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		begin, end := m.part(path, source)
		if n := bytes.Count(source[begin:end], []byte(m.fix)); n > 0 {
			places, file = places+n, path
			changed := bytes.Replace(source[begin:end], []byte(m.fix), []byte(m.without), 1)
			mutated = slices.Concat(source[:begin], changed, source[end:])
		}
	}
	if places != 1 {
		return "", nil, fmt.Errorf("%s %s has %q %d times, not once", m.dir, m.in, m.fix, places)
	}
	return file, mutated, nil
}

// part returns where in a file the fix may be: in the whole of it, or in its function.
func (m *mutation) part(path string, source []byte) (begin, end int) {
	if m.in == "" {
		return 0, len(source)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && nameOf(f) == m.in {
			return set.Position(f.Pos()).Offset, set.Position(f.End()).Offset
		}
	}
	return 0, 0
}

// nameOf is the name of a function, with the type it is a method of.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*") + "." + f.Name.Name
}
