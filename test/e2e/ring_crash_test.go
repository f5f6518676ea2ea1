package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
	"github.com/hyperaccel/lpuctl/test/killer"
)

// tableDir is where the ring tables of containers are.
const tableDir = "/run/lpuctl/ring"

// tablesOf is the ring tables that the spec of a server names. Each has to be there, whole.
func tablesOf(t *testing.T, root, when string) []string {
	t.Helper()
	spec := read(t, filepath.Join(root, "var/run/cdi", specName))
	names := regexp.MustCompile(`"`+tableDir+`/([^"]+)"`).FindAllSubmatch(spec, -1)
	var tables []string
	for _, n := range names {
		name := string(n[1])
		tables = append(tables, name)
		data, err := os.ReadFile(root + tableDir + "/" + name)
		if err != nil {
			t.Fatalf("%s the spec names a table that is not there: %v", when, err)
		}
		sum := sha256.Sum256(data)
		if want := hex.EncodeToString(sum[:16]) + ".json"; name != want {
			t.Fatalf("%s %s has the content of %s:\n%s", when, name, want, data)
		}
	}
	return tables
}

// twoCablings is the specs of a server of three LPUs that is cabled rightward and leftward. They are made on other servers, because a
// command that prints a spec puts its tables in place too.
func twoCablings(t *testing.T) (rightward, leftward []byte) {
	t.Helper()
	var specs [][]byte
	for _, direction := range []string{"Right", "Left"} {
		root := simulate(t, "--profile", "orion", "--lpus", "3")
		machine.Write(t, root+machine.RingTable, cabling(direction, 0, 1, 2))
		specs = append(specs, []byte(machine.Lpuctl(t, "--root", root, "cdi", "generate")))
	}
	return specs[0], specs[1]
}

// TestKilledBetweenTablesAndSpec kills a refresh after another cabling before each of its steps from the first that has to do with ring
// tables: the spec is the old one or the new one, and the tables that it names are there.
func TestKilledBetweenTablesAndSpec(t *testing.T) {
	need(t)
	root := simulate(t, "--profile", "orion", "--lpus", "3")
	spec := filepath.Join(root, "var/run/cdi", specName)
	before, after := twoCablings(t)
	killed := func(n int) (step string) {
		if err := os.RemoveAll(root + tableDir); err != nil {
			t.Fatal(err)
		}
		machine.Write(t, root+machine.RingTable, cabling("Right", 0, 1, 2))
		machine.Lpuctl(t, "--quiet", "--root", root, "cdi", "refresh")
		machine.Write(t, root+machine.RingTable, cabling("Left", 0, 1, 2))
		kill := &killer.Killer{Dir: root + tableDir, Left: n, Changes: true}
		step, err := kill.Run(machine.Binary(t), "--root", root, "--quiet", "cdi", "refresh")
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	kills, tables, old := 0, map[int]bool{}, 0
	for n := 1; ; n++ {
		step := ""
		for try := 0; step == "" && try < 4; try++ { // the tracer sometimes misses the first call that names the directory
			step = killed(n)
		}
		if step == "" {
			break
		}
		kills++
		when := "killed before " + step
		tablesOf(t, root, when)
		switch got := read(t, spec); {
		case bytes.Equal(got, before):
			old++
		case !bytes.Equal(got, after):
			t.Fatalf("%s the spec is neither the old one nor the new one:\n%s", when, got)
		}
		tables[len(namesIn(t, root+tableDir))] = true
		machine.Lpuctl(t, "--quiet", "--root", root, "cdi", "refresh")
		tablesOf(t, root, "after the next refresh")
		if !bytes.Equal(read(t, spec), after) {
			t.Fatalf("%s: the next refresh has not put the new spec in place", when)
		}
	}
	t.Logf("%d kills, %d of them left the old spec, numbers of tables %v", kills, old, tables)
	if kills < 20 || old == 0 || old == kills || len(tables) < 3 {
		t.Error("the writing was not hit")
	}
}

// TestNoRoomForRingTables: a spec names no table that could not be written, lpuctl says so, and the next refresh makes up for it.
func TestNoRoomForRingTables(t *testing.T) {
	need(t)
	_, want := twoCablings(t)
	for name, c := range map[string]struct {
		spoil, mend func(dir string) error
		says        string
	}{
		"full disk": {
			fill, func(dir string) error { return os.Remove(dir + "/other") }, "no space left on device",
		},
		"read-only": {
			func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
			func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT, "size=64k") }, "read-only file system",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := simulate(t, "--profile", "orion", "--lpus", "3")
			dir := root + tableDir
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			machine.Mount(t, "tmpfs", dir, "tmpfs", 0, "size=64k")
			machine.Write(t, root+machine.RingTable, cabling("Right", 0, 1, 2))
			machine.Lpuctl(t, "--root", root, "cdi", "refresh")
			had := len(tablesOf(t, root, "at first"))
			machine.Write(t, root+machine.RingTable, cabling("Left", 0, 1, 2))
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			r := machine.Run(t, machine.Binary(t), "--root", root, "cdi", "refresh")
			if r.Code != 3 || !strings.Contains(r.Stderr, "ring-table-left-out") || !strings.Contains(r.Stderr, c.says) {
				t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
			if left := tablesOf(t, root, "without room"); had == 0 || len(left) != 0 {
				t.Errorf("the spec named %d tables, and names %v", had, left)
			}
			if err := c.mend(dir); err != nil {
				t.Fatal(err)
			}
			machine.Lpuctl(t, "--root", root, "cdi", "refresh")
			if n := len(tablesOf(t, root, "with room")); n != had || !bytes.Equal(read(t, filepath.Join(root, "var/run/cdi", specName)), want) {
				t.Errorf("with room again the spec names %d tables", n)
			}
		})
	}
}

// fill leaves no room on a file system.
func fill(dir string) error {
	f, err := os.Create(dir + "/other")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	return nil
}
