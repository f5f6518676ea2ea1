// Mutation takes fixes out of the source, one at a time, and wants the test that holds each to fail. The source itself stays as it
// is: go test gets the changed file by -overlay.
//
//	go run ./test/mutation            # all
//	go run ./test/mutation NAME...    # these
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

// run tries the mutations of these names, one on each processor at a time; no name means all. The error says that one was not noticed,
// or could not be tried.
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
	for i, m := range mutations() {
		if len(names) > 0 && !slices.Contains(names, m.name) {
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

// try runs the test with the mutation, and returns an error unless the test fails. What it needs for that is in dir, which it makes.
func (m *mutation) try(dir string) error {
	mutated, err := m.apply()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	real, err := filepath.Abs(m.file)
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
	test := exec.Command("go", "test", "-tags", "dra", "-vet=off", "-overlay", overlay, "-count=1", "-run", "^("+m.test+")$", m.pkg)
	printed, err := test.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s passes without the fix", m.test)
	case !bytes.Contains(printed, []byte("--- FAIL: ")):
		return fmt.Errorf("%s did not run: %s", m.test, printed)
	}
	return nil
}

// apply returns the source without the fix. The error says that the source does not have the fix in exactly one place.
func (m *mutation) apply() ([]byte, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(source), m.fix); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times, not once", m.file, m.fix, n)
	}
	return []byte(strings.Replace(string(source), m.fix, m.without, 1)), nil
}
