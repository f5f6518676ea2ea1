package health

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

var address, other = pci.Address{Bus: 0x45, Function: 1}, pci.Address{Bus: 0x46, Function: 1}

func cordon(reason string) Cordon {
	return Cordon{Reason: reason, Since: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), By: "root(0)"}
}

// add is a change that cordons a card.
func add(address pci.Address, reason string) func(Cordons) error {
	return func(c Cordons) error { c[address] = cordon(reason); return nil }
}

func change(t *testing.T, path string, change func(Cordons) error) (Cordons, finding.List) {
	t.Helper()
	after, findings, err := ChangeCordons(t.Context(), path, change)
	if err != nil {
		t.Fatal(err)
	}
	return after, findings
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCordonsAreKept in a file that everybody can read, and that is written only when something changes.
func TestCordonsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "cordon.json")
	f := CordonFile{Path: path}
	if c, findings := f.Read(); len(c) > 0 || len(findings) > 0 {
		t.Errorf("of no file: %v, %v", c, findings)
	}
	change(t, path, add(address, "a"))
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	after, findings := change(t, path, add(address, "a"))
	again, err := os.Stat(path)
	if err != nil || !os.SameFile(before, again) || before.Mode().Perm() != 0o644 {
		t.Errorf("the same once more: written again, or %v, %v", again.Mode(), err)
	}
	if want := (Cordons{address: cordon("a")}); !maps.Equal(after, want) || len(findings) > 0 {
		t.Errorf("%v, %v", after, findings)
	}
	wrong := errors.New("wrong")
	if _, _, err := ChangeCordons(t.Context(), path, func(c Cordons) error { clear(c); return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the error of a change is %v", err)
	}
	if c, findings := f.Read(); !maps.Equal(c, after) || len(findings) > 0 {
		t.Errorf("after a change that failed: %v, %v", c, findings)
	}
	const want = `{
  "apiVersion": "lpuctl.hyperaccel.ai/v1alpha1",
  "kind": "Cordons",
  "cordons": {
    "0000:45:00.1": {
      "reason": "a",
      "since": "2026-11-22T10:00:00Z",
      "by": "root(0)"
    }
  }
}
`
	if got := read(t, path); got != want {
		t.Errorf("the file is\n%s", got)
	}
	write(t, filepath.Join(dir, ".cordon.json123"), "of a command that was killed")
	change(t, path, func(c Cordons) error { clear(c); return nil })
	if c, _ := f.Read(); len(c) > 0 {
		t.Errorf("without cordons: %v", c)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v; want the file and its lock", entries, err)
	}
	lock, err := os.Stat(filepath.Join(dir, ".cordon.lock"))
	if err != nil || lock.Mode().Perm() != 0o600 {
		t.Errorf("the lock is %v, %v", lock.Mode(), err)
	}
}

// TestAnotherTimeZone: a file that somebody has edited is read as the same each time.
func TestAnotherTimeZone(t *testing.T) {
	text, err := json.Marshal(Cordons{address: cordon("a")}.Document())
	if err != nil {
		t.Fatal(err)
	}
	got, err := cordonFile("").Parse(bytes.ReplaceAll(text, []byte("T10:00:00Z"), []byte("T19:00:00+09:00")))
	if want := (Cordons{address: cordon("a")}); err != nil || !maps.Equal(got.Cordons, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// TestChangesAtOnce: nothing is lost, and who reads meanwhile sees each change as a whole.
func TestChangesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cordon.json")
	const cards = 32
	var writers, reader sync.WaitGroup
	done := make(chan struct{})
	reader.Go(func() {
		f, most := CordonFile{Path: path}, 0
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			c, findings := f.Read()
			if len(findings) > 0 || len(c) < most {
				t.Errorf("%d cordons after %d: %v", len(c), most, findings)
			}
			most = len(c)
		}
	})
	for i := range cards {
		writers.Go(func() {
			slowly := func(c Cordons) error {
				time.Sleep(time.Millisecond) // between reading and writing, so that the others come in if they can
				return add(pci.Address{Bus: uint8(i), Function: 1}, "a")(c)
			}
			if _, _, err := ChangeCordons(t.Context(), path, slowly); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	close(done)
	reader.Wait()
	if c, findings := (&CordonFile{Path: path}).Read(); len(c) != cards || len(findings) > 0 {
		t.Errorf("%d of %d cordons are left; %v", len(c), cards, findings)
	}
}

// TestBadFiles: a program that has read the file before keeps to that, another takes nothing for cordoned; both say so. The next change
// keeps the file beside and starts anew.
func TestBadFiles(t *testing.T) {
	good := func(change ...string) string {
		text, err := json.Marshal(Cordons{address: cordon("a")}.Document())
		if err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer(change...).Replace(string(text))
	}
	for name, text := range map[string]string{
		"empty":          "",
		"cut":            good()[:60],
		"two documents":  good() + good(),
		"newer":          good("v1alpha1", "v2"),
		"another kind":   good("Cordons", "Health"),
		"another form":   good(`{"0000:45:00.1":`, `[`),
		"an address":     good(address.String(), "45:00.1"),
		"no such device": good(address.String(), "0000:45:20.1"),
		"another time":   good("2026-11-22T10:00:00Z", "yesterday"),
		"not text":       "\x00\xff",
		"too large":      strings.Repeat(" ", int(cordonFile("").Limit)) + good(),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cordon.json")
			change(t, path, add(address, "before"))
			running := CordonFile{Path: path}
			running.Read()
			write(t, path, text)
			c, findings := running.Read()
			if !maps.Equal(c, Cordons{address: cordon("before")}) || len(findings) != 1 ||
				findings[0].ID != finding.CordonsUnreadable || !strings.Contains(findings[0].Message, "had before stay in force") {
				t.Errorf("a program that knew the cordons: %v, %v", c, findings)
			}
			c, findings = (&CordonFile{Path: path}).Read()
			if len(c) > 0 || len(findings) != 1 || !strings.Contains(findings[0].Message, "no LPU is taken for cordoned") {
				t.Errorf("one that did not: %v, %v", c, findings)
			}
			for range 2 { // there may be a file that was put aside before
				write(t, path, text)
				c, findings = change(t, path, add(other, "after"))
				if !maps.Equal(c, Cordons{other: cordon("after")}) || len(findings) != 1 ||
					!strings.Contains(findings[0].Remedy, path+".bad") {
					t.Errorf("changed: %v, %v", c, findings)
				}
				if read(t, path+".bad") != text {
					t.Error("the file that was put aside is not the one that was there")
				}
			}
			if c, findings := running.Read(); len(c) != 1 || c[other].Reason != "after" || len(findings) > 0 {
				t.Errorf("after the change: %v, %v", c, findings)
			}
		})
	}
}

// TestWhatIsNoFile is left alone.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "cordon.json"), filepath.Join(dir, "target")
	write(t, target, "{")
	for name, make := range map[string]func() error{
		"a link":      func() error { return os.Symlink(target, path) },
		"a directory": func() error { return os.Mkdir(path, 0o755) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ChangeCordons(t.Context(), path, add(address, "a")); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if _, findings := (&CordonFile{Path: path}).Read(); len(findings) != 1 {
			t.Errorf("%s: %v", name, findings)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, target) != "{" {
		t.Error("what the link leads to was written")
	}
}

func TestFileOfTheReleaseBefore(t *testing.T) {
	plant.Rewritten(t, cordonFile(""), "testdata/cordon.json")
}

// Whatever the file holds, it is read or refused; what is read is written and read again as the same.
func FuzzParseCordons(f *testing.F) {
	text, err := json.Marshal(Cordons{address: cordon("a"), {Domain: 0x10000, Bus: 1, Device: 0x1f, Function: 7}: {}}.Document())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), string(text[:50]), "{}", "null", `{"cordons": null}`, string(text) + "x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := cordonFile("")
		d, err := file.Parse(data)
		if err != nil {
			return
		}
		text, err := file.Marshal(d)
		if err != nil {
			t.Fatalf("%v cannot be written: %v", d, err)
		}
		again, err := file.Parse(text)
		if err != nil || len(again.Cordons) != len(d.Cordons) {
			t.Fatalf("%s is read as %v, %v", text, again, err)
		}
		second, err := file.Marshal(again)
		if err != nil || !bytes.Equal(text, second) {
			t.Fatalf("%s is written as %s, %v", text, second, err)
		}
	})
}
