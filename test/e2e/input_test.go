package e2e

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const cardDir = "sys/devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:02.0/0000:45:00.1"

// TestHostileTrees breaks one card of a simulated server in ways no kernel would. Whatever it is, the command
// ends soon with the other seven cards listed.
func TestHostileTrees(t *testing.T) {
	need(t, "timeout")
	for name, spoil := range map[string]func(t *testing.T, card string){
		"junk in every attribute": func(t *testing.T, card string) {
			everyFile(t, card, func(path string) error {
				junk := make([]byte, 300)
				_, _ = rand.Read(junk)
				return os.WriteFile(path, junk, 0o644)
			})
		},
		"a GiB in every attribute": func(t *testing.T, card string) {
			everyFile(t, card, func(path string) error { return os.Truncate(path, 1<<30) })
		},
		"a FIFO for every attribute": func(t *testing.T, card string) {
			everyFile(t, card, func(path string) error { return replaced(path, unix.Mkfifo(path+"-", 0o644)) })
		},
		"a socket for every attribute": func(t *testing.T, card string) {
			everyFile(t, card, func(path string) error { return replaced(path, unix.Mknod(path+"-", unix.S_IFSOCK|0o644, 0)) })
		},
		"a device for every attribute": func(t *testing.T, card string) {
			everyFile(t, card, func(path string) error {
				return replaced(path, unix.Mknod(path+"-", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))))
			})
		},
		"a loop of links for every attribute": func(t *testing.T, card string) {
			everyFile(t, card, func(path string) error { return replaced(path, os.Symlink(filepath.Base(path), path+"-")) })
		},
		"no attribute": func(t *testing.T, card string) { everyFile(t, card, os.Remove) },
	} {
		t.Run(name, func(t *testing.T) {
			root := simulate(t)
			spoil(t, filepath.Join(root, cardDir))
			r := run(t, "timeout", "-s", "KILL", "5", binary(t), "--root", root, "list")
			if r.code != 0 || strings.Count(r.stdout, " healthy") < 7 {
				t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			for _, command := range [][]string{{"list", "-o", "wide"}, {"describe", "lpu0"}, {"cdi", "refresh"}} {
				r := run(t, append([]string{"timeout", "-s", "KILL", "9", binary(t), "--root", root}, command...)...)
				if r.code != 0 && r.code != 3 || strings.Contains(r.stdout+r.stderr, "goroutine ") || strings.ContainsAny(r.stdout, "\x00\x1b") {
					t.Errorf("%v: exit code %d\n%s%s", command, r.code, r.stdout, r.stderr)
				}
			}
		})
	}
}

func everyFile(t *testing.T, dir string, change func(path string) error) {
	t.Helper()
	changed := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		changed++
		return change(path)
	})
	if err != nil || changed < 20 {
		t.Fatalf("changed %d files: %v", changed, err)
	}
}

// replaced puts path- in the place of path.
func replaced(path string, err error) error {
	if err != nil {
		return err
	}
	return os.Rename(path+"-", path)
}

// TestNothingOutsideTheRootIsOpened follows every file the program opens.
func TestNothingOutsideTheRootIsOpened(t *testing.T) {
	need(t, "strace")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.MkdirAll(filepath.Join(secret, "drm"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"vendor": "0x10ee\n", "device": "0x505d\n", "numa_node": "7\n", "config.yaml": "kind: Secret\n"} {
		if err := os.WriteFile(filepath.Join(secret, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := simulate(t)
	out := strings.Repeat("../", 40) + strings.TrimPrefix(secret, "/")
	for link, target := range map[string]string{
		"sys/bus/pci/devices/0000:c0:00.0":       secret, // absolute: leads to nothing below the root
		"sys/bus/pci/devices/0000:c1:00.0":       out,
		"sys/bus/pci/devices/0000:c2:00.0":       "0000:c2:00.0",
		"sys/class/drm/renderD200":               out,
		"sys/bus/pci/drivers/xocl/module-escape": out,
		"etc/lpuctl":                             out,
		cardDir + "/xmc.u.77":                    out,
	} {
		path := filepath.Join(root, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	trace := filepath.Join(t.TempDir(), "trace")
	r := run(t, "strace", "-f", "-qqq", "-y", "-e", "trace=open,openat,openat2", "-o", trace, binary(t), "--root", root, "list", "-o", "json")
	if r.code != 0 || strings.Count(r.stdout, `"usable": true`) != 8 || strings.Contains(r.stdout, `"numaNode": 7`) {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	opened := string(read(t, trace))
	if !strings.Contains(opened, "<"+root+"/sys/bus/pci/devices>") && !strings.Contains(opened, root+"/sys/devices") {
		t.Fatalf("the trace does not show what was opened:\n%.2000s", opened)
	}
	for line := range strings.Lines(opened) {
		if _, result, ok := strings.Cut(line, ") = "); ok && strings.Contains(result, secret) {
			t.Errorf("opened: %s", line)
		}
	}
}

// TestAsAnybody: a user without rights gets a clear answer.
func TestAsAnybody(t *testing.T) {
	need(t, "setpriv")
	root := simulate(t)
	for _, dir := range []string{filepath.Dir(filepath.Dir(root)), filepath.Dir(root)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	duplicate := filepath.Join(filepath.Dir(root), "lpuctl")
	if err := os.WriteFile(duplicate, read(t, binary(t)), 0o755); err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) result {
		return run(t, append([]string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", duplicate, "--root", root}, args...)...)
	}
	if r := as("list"); r.code != 0 || strings.Count(r.stdout, "healthy") != 8 {
		t.Errorf("list: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := as("cdi", "refresh"); r.code != 1 || !strings.Contains(r.stderr, root+"/var") || !strings.Contains(r.stderr, "hint: run as root") {
		t.Errorf("cdi refresh: exit code %d\n%s", r.code, r.stderr)
	}
	if err := os.Chmod(filepath.Join(root, "sys/bus/pci/devices"), 0); err != nil {
		t.Fatal(err)
	}
	if r := as("list"); r.code != 1 || !strings.Contains(r.stderr, "permission denied") || !strings.Contains(r.stderr, "hint: run as a user who may read sysfs") {
		t.Errorf("list: exit code %d\n%s", r.code, r.stderr)
	}
}
