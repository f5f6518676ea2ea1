package e2e

import (
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// A card of the simulated server, lpu2, and where it lies.
const (
	cardAddress = "0000:45:00.1"
	cardDir     = "sys/devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:02.0/" + cardAddress
)

// otherCards are the other cards of that server, as names in a spec hold them.
var otherCards = []string{"0000-43-00.1", "0000-44-00.1", "0000-46-00.1", "0000-83-00.1", "0000-84-00.1", "0000-85-00.1", "0000-86-00.1"}

// spoilers break an attribute in ways no kernel would.
var spoilers = map[string]func(path string) error{
	"junk": func(path string) error {
		junk := make([]byte, 300)
		_, _ = rand.Read(junk) // never fails
		return os.WriteFile(path, junk, 0o644)
	},
	// One line that a terminal would obey.
	"escape codes":    func(path string) error { return os.WriteFile(path, []byte("\x1b[2J\x1b]0;lpu\a\xff\n"), 0o644) },
	"a GiB":           func(path string) error { return os.Truncate(path, 1<<30) },
	"a FIFO":          func(path string) error { return replaced(path, unix.Mkfifo(path+"-", 0o644)) },
	"a socket":        func(path string) error { return replaced(path, unix.Mknod(path+"-", unix.S_IFSOCK|0o644, 0)) },
	"a device":        func(path string) error { return replaced(path, machine.MakeNode(path+"-", 1, 5)) }, // /dev/zero
	"a loop of links": func(path string) error { return replaced(path, os.Symlink(filepath.Base(path), path+"-")) },
	"nothing":         os.Remove,
}

// TestHostileTrees breaks every attribute of one card of a simulated server. Whatever stands there, each command
// ends soon, and the other seven cards are handed out under the names that they had.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	need(t)
	ids := []string{"vendor", "device", "subsystem_vendor", "subsystem_device", "class"}
	for name, spoil := range spoilers {
		t.Run(name+" in every attribute", func(t *testing.T) {
			hostileTree(t, spoil, nil) // that it is an LPU is known by its management function
		})
		t.Run(name+" in every attribute but the ids", func(t *testing.T) {
			// The card is known to be an LPU, and what its node is can no longer be told.
			hostileTree(t, spoil, ids)
		})
	}
}

func hostileTree(t *testing.T, spoil func(path string) error, keep []string) {
	t.Helper()
	root := simulate(t)
	everyFile(t, filepath.Join(root, cardDir), keep, spoil)
	lpuctl := func(args ...string) machine.Result {
		return bounded(t, append([]string{machine.Binary(t), "--root", root}, args...)...)
	}
	list := lpuctl("list")
	if list.Code != 0 || strings.Count(list.Stdout, " healthy") != 7 || !strings.Contains(list.Stdout, cardAddress) {
		t.Errorf("list: exit code %d\n%s%s", list.Code, list.Stdout, list.Stderr)
	}
	if !strings.Contains(list.Stdout, " unhealthy") {
		t.Errorf("list does not call the broken card unhealthy:\n%s", list.Stdout)
	}
	if r := lpuctl("cdi", "refresh"); r.Code != 3 {
		t.Errorf("cdi refresh: exit code %d, want 3\n%s", r.Code, r.Stderr)
	}
	if diff := cmp.Diff(otherCards, cardsInSpec(t, root)); diff != "" {
		t.Errorf("the cards in the spec:\n%s", diff)
	}
	for _, command := range [][]string{
		{"list", "-o", "wide"},
		{"list", "-o", "json"},
		{"describe", "lpu0"},
		{"describe", "2"},
		{"topology"},
		{"cdi", "list"},
	} {
		if r := lpuctl(command...); r.Code != 0 {
			t.Errorf("%v: exit code %d\n%s", command, r.Code, r.Stderr)
		}
	}
}

// cardsInSpec are the cards that the spec of a node has, by the names that hold their address.
func cardsInSpec(t *testing.T, root string) []string {
	t.Helper()
	var spec struct{ Devices []struct{ Name string } }
	if err := json.Unmarshal(read(t, filepath.Join(root, "var/run/cdi", specName)), &spec); err != nil {
		t.Fatal(err)
	}
	var cards []string
	for _, d := range spec.Devices {
		if address, ok := strings.CutPrefix(d.Name, "pci-"); ok {
			cards = append(cards, address)
		}
	}
	return cards
}

// everyFile changes the files of a directory and below, but for those of the names to keep.
func everyFile(t *testing.T, dir string, keep []string, change func(path string) error) {
	t.Helper()
	changed := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || slices.Contains(keep, d.Name()) {
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
	for name, text := range map[string]string{
		"vendor":      "0x10ee\n",
		"device":      "0x505d\n",
		"numa_node":   "7\n",
		"config.yaml": "kind: Secret\n",
	} {
		if err := os.WriteFile(filepath.Join(secret, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	secrets := namesIn(t, secret)
	root := simulate(t)
	card := filepath.Join(root, "sys/bus/pci/devices", cardAddress)
	if err := os.Remove(card); err != nil {
		t.Fatal(err)
	}
	out := strings.Repeat("../", 40) + strings.TrimPrefix(secret, "/")
	for link, target := range map[string]string{
		"sys/bus/pci/devices/0000:c0:00.0":       secret, // absolute: leads to nothing below the root
		"sys/bus/pci/devices/0000:c1:00.0":       out,
		"sys/bus/pci/devices/0000:c2:00.0":       "0000:c2:00.0",
		"sys/class/drm/renderD200":               out,
		"sys/bus/pci/drivers/xocl/module-escape": out,
		"etc/lpuctl":                             out,
		cardDir + "/xmc.u.77":                    out,
		"sys/bus/pci/devices/" + cardAddress:     "/" + cardDir, // absolute: leads to the card below the root
		"var/run":                                "/run",        // as real machines have it
		"run/cdi":                                out,
	} {
		path := filepath.Join(root, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	r, opened := opens(t, machine.Binary(t), "--root", root, "list", "-o", "json")
	if r.Code != 0 || strings.Count(r.Stdout, `"usable": true`) != 8 || strings.Contains(r.Stdout, `"numaNode": 7`) {
		t.Errorf("list: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	wantBelow(t, root, opened)
	// Entries that cannot be read may be LPUs: then nothing is written.
	if r := machine.Run(t, machine.Binary(t), "--root", root, "cdi", "refresh"); r.Code != 1 {
		t.Errorf("refresh: exit code %d\n%s", r.Code, r.Stderr)
	}
	for _, name := range []string{"0000:c0:00.0", "0000:c1:00.0", "0000:c2:00.0"} {
		if err := os.Remove(filepath.Join(root, "sys/bus/pci/devices", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{{"describe", "lpu2"}, {"cdi", "refresh"}, {"cdi", "list"}} {
		_, opened := opens(t, append([]string{machine.Binary(t), "--root", root}, command...)...)
		for _, file := range opened {
			if strings.HasPrefix(file, secret) {
				t.Errorf("%v opened %s", command, file)
			}
		}
	}
	if diff := cmp.Diff(secrets, namesIn(t, secret)); diff != "" {
		t.Errorf("outside of the root there is now:\n%s", diff)
	}
	// As in a chroot, the links of the spec directory lead to the secret's place below the root.
	if _, err := os.Stat(filepath.Join(root, secret, specName)); err != nil {
		t.Errorf("the spec is not where the links lead: %v", err)
	}
}

// opens runs a command and returns the files it opened, as the kernel names them.
func opens(t *testing.T, command ...string) (r machine.Result, files []string) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	r = machine.Run(t, append([]string{"strace", "-f", "-qqq", "-y", "-e", "trace=open,openat,openat2", "-o", trace}, command...)...)
	for line := range strings.Lines(string(read(t, trace))) {
		_, opened, ok := cutLast(line, " = ") // = 7</the/file>
		if _, file, found := strings.Cut(opened, "<"); ok && found {
			files = append(files, strings.TrimSuffix(strings.TrimSpace(file), ">"))
		}
	}
	return r, files
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// runtimeFiles are what the runtime of a Go program reads to learn how many processors it may use.
var runtimeFiles = regexp.MustCompile(
	`^(/sys/kernel/mm/transparent_hugepage/hpage_pmd_size|/sys/fs/cgroup/.*|/proc/[0-9]+/(cgroup|mountinfo))$`)

// wantBelow wants all files below the root, but for what a program reads to start.
func wantBelow(t *testing.T, root string, files []string) {
	t.Helper()
	below := 0
	for _, file := range files {
		switch {
		case file == root, strings.HasPrefix(file, root+"/"):
			below++
		case runtimeFiles.MatchString(file), file == machine.Binary(t): // protobuf looks at itself, to be unpredictable
		default:
			t.Errorf("opened outside of the root: %s", file)
		}
	}
	if below < 100 {
		t.Errorf("only %d files below the root were opened: the trace does not show them", below)
	}
}

// TestNoMachine: what is no root of a machine is named, with what to do.
func TestNoMachine(t *testing.T) {
	need(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, root := range map[string]string{"empty": t.TempDir(), "a file": file, "missing": file + "-missing"} {
		t.Run(name, func(t *testing.T) {
			for _, command := range [][]string{{"list"}, {"describe", "lpu0"}, {"topology"}, {"cdi", "generate"}, {"cdi", "refresh"}} {
				wantRefused(t, bounded(t, append([]string{machine.Binary(t), "--root", root}, command...)...), root, "")
			}
		})
	}
}

// TestNoDev: where /dev cannot be seen, as in a container, nodes are not verified and are handed out.
func TestNoDev(t *testing.T) {
	need(t)
	root := simulate(t)
	verified := func() int {
		return strings.Count(bounded(t, machine.Binary(t), "--root", root, "list", "-o", "json").Stdout, `"verified": true`)
	}
	if n := verified(); n != 8 {
		t.Fatalf("with /dev %d nodes are verified", n)
	}
	if err := os.RemoveAll(filepath.Join(root, "dev")); err != nil {
		t.Fatal(err)
	}
	if n := verified(); n != 0 {
		t.Errorf("without /dev %d nodes are verified", n)
	}
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	if cards := cardsInSpec(t, root); len(cards) != 8 {
		t.Errorf("in the spec are %v", cards)
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
	if err := os.WriteFile(duplicate, read(t, machine.Binary(t)), 0o755); err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) machine.Result {
		nobody := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", duplicate, "--root", root}
		return bounded(t, append(nobody, args...)...)
	}
	if r := as("list"); r.Code != 0 || strings.Count(r.Stdout, "healthy") != 8 {
		t.Errorf("list: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	r := as("cdi", "refresh")
	if r.Code != 1 || !strings.Contains(r.Stderr, root+"/var") || !strings.Contains(r.Stderr, "remedy: run as root") {
		t.Errorf("cdi refresh: exit code %d\n%s", r.Code, r.Stderr)
	}
	// One card that he may not read hides no other.
	if err := os.Chmod(filepath.Join(root, cardDir), 0); err != nil {
		t.Fatal(err)
	}
	denied := func(r machine.Result, path string) bool {
		return strings.Contains(r.Stderr, root+path) && strings.Contains(r.Stderr, "permission denied")
	}
	r = as("list")
	if r.Code != 0 || strings.Count(r.Stdout, " healthy") != 7 || !denied(r, "/sys/bus/pci/devices/"+cardAddress) {
		t.Errorf("list: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if err := os.Chmod(filepath.Join(root, "sys/bus/pci/devices"), 0); err != nil {
		t.Fatal(err)
	}
	r = as("list")
	if r.Code != 1 || !denied(r, "/sys/bus/pci/devices") || !strings.Contains(r.Stderr, "remedy: run as a user who may read sysfs") {
		t.Errorf("list: exit code %d\n%s", r.Code, r.Stderr)
	}
}
