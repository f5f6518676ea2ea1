package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/owner"
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
// each command ends and shows all LPUs, some command says what is wrong, and none changes the file.
// Only the config file ends all commands, because no one else says what it says.
func TestEveryFileThatBreaks(t *testing.T) {
	w := newWorld(t, long.Rand(t))
	files := w.writeAll()
	before := w.says("list")
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for how, spoil := range breaks {
			name := fmt.Sprint(strings.TrimPrefix(path, w.root), ", ", how)
			if err := spoil(path, data); err != nil {
				t.Fatal(err)
			}
			spoilt := w.written(strings.TrimPrefix(filepath.Dir(path), w.root))
			w.sayWhatIsWrong(name, path)
			if now := w.written(strings.TrimPrefix(filepath.Dir(path), w.root)); !slices.Equal(spoilt, now) {
				t.Errorf("%s: files change:\n%v\n%v", name, spoilt, now)
			}
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, data, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := w.says("list"); after != before {
		t.Errorf("when all files are whole again list prints\n%s\nand before\n%s", after, before)
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
	for _, dir := range []string{node.StateDir, "run/lpuctl", "var/run/cdi", "etc/lpuctl"} {
		err := filepath.WalkDir(filepath.Join(w.root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") {
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
	return append(files, table)
}

// says is what a command prints, at the third time: see thrice.
func (w *world) says(command string) string {
	var printed string
	_ = thrice(func() error { // a card that seems to hang is unknown
		_, printed = w.lpuctl(strings.Fields(command)...)
		if strings.Contains(printed, "read-stalled") {
			return errors.New(printed)
		}
		return nil
	})
	return printed
}

// sayWhatIsWrong runs commands while a file is broken.
func (w *world) sayWhatIsWrong(name, path string) {
	config := filepath.Base(path) == "config.yaml"
	said := false
	for _, command := range []string{
		"list", "health", "describe lpu0", "topology", "allocate -n 1", "cdi validate", "cdi diff", "cdi list", "owner show",
		"runtime check", "ring check", "config check",
	} {
		code, printed := w.lpuctl(strings.Fields(command)...)
		said = said || strings.Contains(printed, filepath.Base(path)) || strings.Contains(printed, "hostname")
		if code != cli.ExitDone && printed == "" {
			w.t.Errorf("%s: %s ends with %d and says nothing", name, command, code)
		}
		if command == "list" && !config {
			for i := range worldLPUs {
				if !strings.Contains(printed, fmt.Sprint("lpu", i, " ")) {
					w.t.Errorf("%s: list hides lpu%d:\n%s", name, i, printed)
				}
			}
		}
	}
	if !said {
		w.t.Errorf("%s: no command says what is wrong", name)
	}
}
