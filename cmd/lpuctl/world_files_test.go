package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/test/long"
)

// breaks are the ways in which a file breaks.
var breaks = map[string]func(path string, data []byte) error{
	"cut":   func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)/2], 0o644) },
	"empty": func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o644) },
	"of a newer version": func(path string, data []byte) error {
		data = bytes.Replace(data, []byte("/v1alpha1"), []byte("/v9"), 1)
		return os.WriteFile(path, bytes.Replace(data, []byte(`"cdiVersion": "0`), []byte(`"cdiVersion": "9`), 1), 0o644)
	},
	"a link": func(path string, _ []byte) error {
		return errors.Join(os.Remove(path), os.Symlink("/etc/hostname", path))
	},
	"a FIFO":      func(path string, _ []byte) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)) },
	"a directory": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
}

// TestEveryFileThatBreaks: whatever has become of a file that lpuctl or another program has written,
// each command ends, list shows all LPUs, some command says what is wrong, and none changes the file.
// Only the config file ends all commands, because no one else says what it says. Each file breaks in
// one of the ways, and in all of them where LPUCTL_LONG is set.
func TestEveryFileThatBreaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, long.Rand(t))
	files := w.writeAll()
	before := w.saysAll()
	ways := slices.Sorted(maps.Keys(breaks))
	for i, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for k, how := range ways {
			if !long.Takes(i+k, len(ways)) {
				continue
			}
			name := fmt.Sprint(strings.TrimPrefix(path, w.root), ", ", how)
			if err := breaks[how](path, data); err != nil {
				t.Fatal(err)
			}
			if now, err := wholefile.Read(path, 1<<20); err == nil && bytes.Equal(now, data) {
				continue // it has no version
			}
			spoilt := w.written(strings.TrimPrefix(filepath.Dir(path), w.root))
			w.sayWhatIsWrong(name, path, before)
			if now := w.written(strings.TrimPrefix(filepath.Dir(path), w.root)); !slices.Equal(spoilt, now) {
				t.Errorf("%s: files change:\n%v\n%v", name, spoilt, now)
			}
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, data, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := w.saysAll()["list"]; after != before["list"] {
		t.Errorf("when all files are whole again list prints\n%s\nand before\n%s", after, before["list"])
	}
}

// writeAll has each file written that a node may have, and returns those of which something depends.
// The ring table in place is no table, so that the last cabling is in use.
func (w *world) writeAll() (files []string) {
	w.start()
	w.rest()
	w.changeConfig()
	w.reload()
	w.rest()
	w.cordon(0)
	if !w.claim(1) || !w.lease(2) {
		w.t.Fatal("there is no claim, or no lease")
	}
	state := filepath.Join(w.root, node.StateDir)
	if _, err := (owner.File{Dir: state}).Set(w.t.Context(), owner.Plugin, "test", false); err != nil {
		w.t.Fatal(err)
	}
	w.rest()
	table := filepath.Join(w.root, worldTable)
	if err := os.WriteFile(table, []byte("{}"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	tables := filepath.Join(w.root, cdi.RingTableDir)
	for _, dir := range []string{node.StateDir, "run/lpuctl", "var/run/cdi", "etc/lpuctl"} {
		err := filepath.WalkDir(filepath.Join(w.root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") && !strings.HasPrefix(path, tables) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if len(files) < 8 {
		w.t.Fatal("files are missing: ", files)
	}
	of := cdi.RingTableOf(w.serve.plugin.Node.Latest().Inventory, []int{0}) // one is like the other
	return append(files, table, filepath.Join(w.root, of.HostPath))
}

// readers are commands that read files and change none.
var readers = []string{
	"list", "health", "describe lpu0", "topology", "allocate -n 1", "cdi validate", "cdi diff", "cdi list", "owner show",
	"runtime check", "ring check", "config check",
}

// saysAll is what the commands print.
func (w *world) saysAll() map[string]string {
	all := map[string]string{}
	for _, command := range readers {
		_ = thrice(func() error {
			_, all[command] = w.lpuctl(strings.Fields(command)...)
			if strings.Contains(all[command], "read-stalled") {
				return errors.New("the machine is busy")
			}
			return nil
		})
	}
	return all
}

// sayWhatIsWrong runs the commands while a file is broken. before is what they print when it is not.
func (w *world) sayWhatIsWrong(name, path string, before map[string]string) {
	said := false
	for _, command := range readers {
		code, printed := w.lpuctl(strings.Fields(command)...)
		for line := range strings.Lines(printed) {
			said = said || !strings.Contains(before[command], line) && (strings.Contains(line, strings.TrimPrefix(path, w.root)) ||
				strings.Contains(line, "/etc/hostname"))
		}
		if code != cli.ExitDone && printed == "" {
			w.t.Errorf("%s: %s ends with %d and says nothing", name, command, code)
		}
		if command != "list" || filepath.Base(path) == "config.yaml" {
			continue
		}
		for i := range worldLPUs {
			if !strings.Contains(printed, fmt.Sprint("lpu", i, " ")) {
				w.t.Errorf("%s: list hides lpu%d:\n%s", name, i, printed)
			}
		}
	}
	if fine := name == "/etc/lpuctl/config.yaml, empty"; !said && !fine { // it says nothing, which is no fault
		w.t.Errorf("%s: no command says what is wrong", name)
	}
}
