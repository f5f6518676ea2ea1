package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/long"
)

// limited runs lpuctl with a limit of open files, and returns its exit code and what it printed.
func limited(t *testing.T, root string, limit int, args ...string) (code int, out, said string) {
	t.Helper()
	line := append([]string{"-c", `ulimit -n "$0" && exec lpuctl --root "$@"`, fmt.Sprint(limit), root}, args...)
	command := exec.Command("sh", line...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run() // the exit code says how it ended
	return command.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// TestFewDescriptors: with any number of descriptors a command is right, or it fails and says why. The spec in place stays as it is
// then. Each command is tried with every fourth number, and with all where LPUCTL_LONG is set.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	const enough = 256
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 16}).Write(root); err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(root, "var/run/cdi/hyperaccel.ai-lpu.json")
	if code, _, said := limited(t, root, enough, "cdi", "refresh", "--quiet"); code != 0 {
		t.Fatal(said)
	}
	want, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	begins := func(limit int) bool {
		code, _, _ := limited(t, root, limit, "version")
		return code == 0
	}
	const plenty = 64
	const fewest, most = 6, 16 // with fewer the runtime of Go cannot begin
	first := fewest + sort.Search(most-fewest, func(i int) bool { return begins(fewest + i) })
	limits := []int{plenty}
	for limit := first; limit < 26; limit++ {
		limits = append(limits, limit)
	}
	for i, line := range []string{
		"list -o json", "health -o json", "allocate -n 3", "cdi refresh --quiet", "cdi diff", "cdi validate", "cdi generate",
	} {
		args := strings.Fields(line)
		code, out, said := limited(t, root, enough, args...)
		failures := 0
		for k, limit := range limits {
			if !long.Takes(i+k, 4) {
				continue
			}
			gotCode, got, complaint := limited(t, root, limit, args...)
			switch {
			case gotCode == 1 && code != 1 && limit < plenty:
				failures++
				if !strings.Contains(complaint, "too many open files") ||
					!strings.Contains(complaint, "remedy: raise the limit of open files: ulimit -n ") {
					t.Errorf("%s with %d descriptors: it says %q", line, limit, complaint)
				}
			case gotCode != code || got != out:
				t.Errorf("%s with %d descriptors: exit code %d, want %d, and it prints %d bytes, not %d: %s\n%s",
					line, limit, gotCode, code, len(got), len(out), complaint, said)
			}
			if have, err := os.ReadFile(spec); err != nil || !bytes.Equal(have, want) {
				t.Fatalf("%s with %d descriptors has changed the spec: %v", line, limit, err)
			}
		}
		if failures == 0 && !long.Race { // with which only a few numbers are tried
			t.Errorf("%s never fails", line)
		}
	}
}

// TestServeHoldsWhatItKnew: while the machine cannot be read the kubelet is told nothing else and no
// file changes. After three scans serve is
// not ready and says why, and how to mend it. It is alive, and ready again with the first scan that succeeds.
func TestServeHoldsWhatItKnew(t *testing.T) {
	for name, fault := range map[string]struct {
		begin func(n *observedNode, serve int) (end func() error)
		says  string
	}{
		"no list of PCI devices": {hideList, "what was known before holds; remedy: check --root, and that sysfs is mounted there"},
		"few descriptors":        {useUp, "too many open files; what was known before holds; remedy: raise the limit of open files: ulimit -n "},
	} {
		t.Run(name, func(t *testing.T) { holdsWhatItKnew(t, fault.begin, fault.says) })
	}
}

// hideList takes the list of PCI devices away.
func hideList(n *observedNode, _ int) (end func() error) {
	list := filepath.Join(n.root, "sys/bus/pci/devices")
	if err := os.Rename(list, list+".away"); err != nil {
		n.Fatal(err)
	}
	return func() error { return os.Rename(list+".away", list) }
}

// useUp leaves a process so many descriptors that it can answer, and no more.
func useUp(n *observedNode, pid int) (end func() error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		n.Fatal(err)
	}
	taken, limit := map[string]bool{}, uint64(0)
	for _, e := range open {
		taken[e.Name()] = true
	}
	for left := 3; left > 0; limit++ { // the kernel refuses numbers from the limit on
		if !taken[fmt.Sprint(limit)] {
			left--
		}
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		n.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}, nil); err != nil {
		n.Fatal(err)
	}
	return func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil) }
}

func holdsWhatItKnew(t *testing.T, begin func(*observedNode, int) func() error, says string) {
	n := newObservedNode(t)
	kubelet := newKubelet(t, filepath.Join(n.root, "kubelet"))
	s := n.servesMetrics("--plugin-dir", "/kubelet", "--interval", "100ms")
	s.eventually("/readyz", 200, "registered\n")
	files := []string{"var/run/cdi/hyperaccel.ai-lpu.json", "var/lib/lpuctl/last-ring.yaml"}
	var before []string
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(n.root, file))
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, string(data))
	}
	end := begin(n, s.command.Process.Pid)
	s.eventually("/readyz", 503, says)
	s.eventually("/healthz", 200, "ok\n")
	listed := kubelet.listed()
	for id, health := range listed {
		if health != api.Healthy {
			t.Errorf("%s is %s", id, health)
		}
	}
	if len(listed) != 8 {
		t.Errorf("%d LPUs are offered", len(listed))
	}
	for i, file := range files {
		if data, err := os.ReadFile(filepath.Join(n.root, file)); err != nil || string(data) != before[i] {
			t.Errorf("%s has changed: %v", file, err)
		}
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	s.eventually("/readyz", 200, "registered\n")
}
