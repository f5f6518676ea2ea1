package discovery

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// plant writes files below a fresh directory: "-> target" makes a link, "fifo", "socket" and "dir" what they
// say, anything else a file of that content.
func plant(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		plantOne(t, filepath.Join(root, name), files[name])
	}
	return root
}

func plantOne(t testing.TB, name, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	target, isLink := strings.CutPrefix(content, "-> ")
	switch {
	case err != nil:
	case isLink:
		err = os.Symlink(target, name)
	case content == "fifo":
		err = unix.Mkfifo(name, 0o644)
	case content == "socket":
		err = unix.Mknod(name, unix.S_IFSOCK|0o644, 0)
	case content == "dir":
		err = os.Mkdir(name, 0o755)
	default:
		err = os.WriteFile(name, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bothWays runs a test with openat2 and with the fallback for kernels that lack it.
func bothWays(t *testing.T, root string, test func(*testing.T, *tree)) {
	for name, without := range map[string]bool{"openat2": false, "fallback": true} {
		t.Run(name, func(t *testing.T) {
			tr, err := openTree(root)
			if err != nil {
				t.Fatal(err)
			}
			tr.noOpenat2 = without
			test(t, tr)
		})
	}
}

func TestTreeStaysInItsRoot(t *testing.T) {
	outside := plant(t, map[string]string{"secret/text": "secret\n"})
	root := plant(t, map[string]string{
		"a/text":        "inside\n",
		"absolute":      "-> /a",
		"climbs":        "-> ../../../../../../../../a",
		"escapes":       "-> " + outside + "/secret",
		"climbs-out":    "-> ../../../../../../../.." + outside + "/secret",
		"loop":          "-> loop2",
		"loop2":         "-> loop",
		"deep/er/again": "-> /absolute",
	})
	bothWays(t, root, func(t *testing.T, tr *tree) {
		for _, p := range []string{"a", "absolute", "climbs", "deep/er/again", "/a", "deep/../a"} {
			d, err := tr.open(p)
			if err != nil {
				t.Errorf("%s: %v", p, err)
				continue
			}
			if text, err := d.text("text"); text != "inside" || err != nil {
				t.Errorf("%s/text = %q, %v", p, text, err)
			}
			d.close()
		}
		for _, p := range []string{"escapes", "climbs-out", "loop", "nothing"} {
			if d, err := tr.open(p); err == nil {
				t.Errorf("%s: opened %s", p, d.path)
			}
		}
		if tr.exists("escapes") || tr.exists("loop/x") || !tr.exists("absolute/text") {
			t.Error("exists left the root, or does not follow links within it")
		}
	})
}

func TestAttributesAreSmallRegularTextFiles(t *testing.T) {
	root := plant(t, map[string]string{
		"d/good":   "0x10ee\n",
		"d/empty":  "",
		"d/full":   strings.Repeat("x", attributeMax),
		"d/long":   strings.Repeat("x", attributeMax+1),
		"d/junk":   "\x00\xff\x01",
		"d/utf8":   "käse\n",
		"d/fifo":   "fifo",
		"d/socket": "socket",
		"d/dir":    "dir",
		"d/link":   "-> good",
	})
	huge := filepath.Join(root, "d/huge")
	plantOne(t, huge, "")
	if err := os.Truncate(huge, 1<<30); err != nil {
		t.Fatal(err)
	}
	bothWays(t, root, func(t *testing.T, tr *tree) {
		d, err := tr.open("d")
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		for name, want := range map[string]string{"good": "0x10ee", "empty": "", "full": strings.Repeat("x", attributeMax)} {
			if got, err := d.text(name); got != want || err != nil {
				t.Errorf("%s = %.20q, %v", name, got, err)
			}
		}
		for name, want := range map[string]string{
			"long":   "longer than a sysfs attribute can be",
			"huge":   "longer than a sysfs attribute can be",
			"junk":   "not text",
			"utf8":   "not text",
			"fifo":   "a FIFO, not a regular file",
			"socket": "a socket, not a regular file",
			"dir":    "a directory, not a regular file",
			"link":   "a symbolic link, not a regular file",
			"absent": "no such file",
		} {
			_, err := d.text(name)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Join(root, "d", name)) {
				t.Errorf("%s: %v, want %q with the path", name, err, want)
			}
		}
	})
}

// TestOpenWhileFilesAreRenamed: the kernel answers openat2 with EAGAIN where a link climbs ("..") while any file
// of the machine is being renamed. That must not look like a card that has gone.
func TestOpenWhileFilesAreRenamed(t *testing.T) {
	root := plant(t, map[string]string{"a/b/file": "x", "links/to/b": "-> ../../a/b", "moving/dir1/x": "x"})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		from, to := filepath.Join(root, "moving/dir1"), filepath.Join(root, "moving/dir2")
		for {
			select {
			case <-stop:
				return
			default:
				if err := os.Rename(from, to); err != nil {
					t.Error(err)
					return
				}
				from, to = to, from
			}
		}
	}()
	tr, err := openTree(root)
	if err != nil {
		t.Fatal(err)
	}
	for range 20000 {
		d, err := tr.open("links/to/b")
		if err != nil {
			t.Error(err)
			break
		}
		d.close()
	}
	close(stop)
	<-done
}
