package claim_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// TestDirectoriesThatCannotBeWritten: a claim whose record or file cannot be written is not prepared, and has no LPU. One that is prepared
// keeps its LPUs, and gets its file as soon as that can be written.
func TestDirectoriesThatCannotBeWritten(t *testing.T) {
	for name, put := range map[string]func(dir string) error{
		"read-only":       func(dir string) error { return os.Symlink("/proc/self/fdinfo", dir) }, // where nobody can make a file
		"not mounted":     func(dir string) error { return os.Symlink("/nowhere/lpuctl", dir) },
		"not a directory": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		for _, which := range []string{"var/lib/lpuctl", "var/lib/lpuctl/dra-claims", "var/run/cdi"} {
			t.Run(name+" "+filepath.Base(which), func(t *testing.T) {
				w := newWorld(t)
				s := w.store()
				w.prepare(s, wish(1, "arc0-1"))
				w.prepare(s, wish(2, "arc2"))
				w.unprepare(s, uid(2))
				dir := filepath.Join(w.root, which)
				w.must(errors.Join(os.Rename(dir, dir+".aside"), put(dir)))
				w.refused(s, wish(2, "arc2-3"), dir)
				if which == "var/run/cdi" {
					if _, err := os.Lstat(recordOf(s, 2)); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("the record of a claim that is not prepared: %v", err)
					}
					if findings, err := s.Restore(t.Context()); err == nil && (len(findings) != 1 || findings[0].ID != finding.ClaimFile) {
						t.Errorf("%v, %v", findings, err)
					}
				}
				w.must(errors.Join(os.Remove(dir), os.Rename(dir+".aside", dir)))
				w.holds(s, map[int]int{0: 1, 1: 1})
				w.must(os.Remove(cdi.ClaimFile(s.SpecDir, uid(1))))
				w.restore(s)
				w.env(s, uid(1))
				w.prepare(s, wish(2, "arc2-3"))
			})
		}
	}
}

// TestAFullDisk: what cannot be recorded is not prepared, and what is prepared can be given back.
func TestAFullDisk(t *testing.T) {
	const child = "LPUCTL_TEST_FULL_DISK"
	if os.Getenv(child) == "" { // no file of the whole process can grow, and go test writes files too
		itself := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAFullDisk$", "-test.v")
		itself.Env = append(os.Environ(), child+"=1")
		if out, err := itself.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestAFullDisk") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	w := newWorld(t)
	s := w.store()
	w.prepare(s, wish(1, "arc0-1"))
	w.prepare(s, wish(2, "arc2-3"))
	w.must(os.Remove(cdi.ClaimFile(s.SpecDir, uid(2))))
	signal.Ignore(unix.SIGXFSZ) // which would end the process
	var before unix.Rlimit
	w.must(unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	w.must(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 16, Max: before.Max}))
	w.refused(s, wish(3, "arc4-5"), "file too large")
	w.refused(s, wish(2, "arc2-3"), "file too large")
	w.restore(s, finding.ClaimFile)
	w.unprepare(s, uid(1))
	w.holds(s, map[int]int{2: 2, 3: 2})
	w.must(unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	w.restore(s)
	w.prepare(s, wish(3, "arc0-1"))
	w.holds(s, map[int]int{0: 3, 1: 3, 2: 2, 3: 2})
}
