// Package libraries asks releases of the CDI library what a container gets by the files in some spec
// directories. One release is in this program. Others are programs of test/e2e/library: make e2e
// builds them, and LIBRARIES names their directory.
package libraries

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Release is a release of the CDI library.
type Release struct {
	Name string        // "1.1.1"
	in   *json.Encoder // nil: it is that in this program
	out  *json.Decoder
}

// Start returns the release in this program and, where LIBRARIES is set, two older ones, which runtimes
// in use are built with. They end with the test.
func Start(t testing.TB) []*Release {
	t.Helper()
	all := []*Release{{Name: "1.1.1"}}
	dir := os.Getenv("LIBRARIES")
	if dir == "" {
		return all
	}
	for _, name := range []string{"0.5.4", "0.8.1"} {
		program := exec.CommandContext(t.Context(), filepath.Join(dir, "v"+name), "-")
		in, inErr := program.StdinPipe()
		out, outErr := program.StdoutPipe()
		if err := errors.Join(inErr, outErr, program.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = program.Wait()
		})
		all = append(all, &Release{name, json.NewEncoder(in), json.NewDecoder(out)})
	}
	return all
}

// Ask returns the numbers of the nodes that a container gets with each device, as "226:128".
func (l *Release) Ask(t testing.TB, dirs []string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	if l.in != nil {
		if err := errors.Join(l.in.Encode(dirs), l.out.Decode(&all)); err != nil {
			t.Fatalf("library %s: %v", l.Name, err)
		}
		return all
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range cache.ListDevices() {
		container := &oci.Spec{}
		if _, err := cache.InjectDevices(container, name); err != nil {
			t.Fatal(err)
		}
		all[name] = []string{}
		if container.Linux == nil {
			continue
		}
		for _, d := range container.Linux.Devices {
			all[name] = append(all[name], fmt.Sprintf("%d:%d", d.Major, d.Minor))
		}
	}
	return all
}
