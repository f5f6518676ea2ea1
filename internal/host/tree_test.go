package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/plant"
)

// bothWays runs a test with openat2 and with the fallback for kernels that lack it.
func bothWays(t *testing.T, root string, test func(*testing.T, *Tree)) {
	for name, without := range map[string]bool{"openat2": false, "fallback": true} {
		t.Run(name, func(t *testing.T) {
			tr, err := Root(root).Open()
			if err != nil {
				t.Fatal(err)
			}
			tr.NoOpenat2 = without
			test(t, tr)
		})
	}
}

func TestTreeStaysInItsRoot(t *testing.T) {
	outside := plant.Tree(t, map[string]string{"secret/text": "secret\n"})
	root := plant.Tree(t, map[string]string{
		"a/text":        "inside\n",
		"absolute":      "-> /a",
		"climbs":        "-> ../../../../../../../../a",
		"escapes":       "-> " + outside + "/secret",
		"climbs-out":    "-> ../../../../../../../.." + outside + "/secret",
		"loop":          "-> loop2",
		"loop2":         "-> loop",
		"deep/er/again": "-> /absolute",
	})
	bothWays(t, root, func(t *testing.T, tr *Tree) {
		for _, p := range []string{"a", "absolute", "climbs", "deep/er/again", "/a", "deep/../a"} {
			d, err := tr.Dir(p)
			if err != nil {
				t.Errorf("%s: %v", p, err)
				continue
			}
			if text, err := d.Text("text"); text != "inside" || err != nil {
				t.Errorf("%s/text = %q, %v", p, text, err)
			}
			d.Close()
		}
		for _, p := range []string{"escapes", "climbs-out", "loop", "nothing"} {
			if d, err := tr.Dir(p); err == nil {
				t.Errorf("%s: opened %s", p, d.Path)
			}
		}
		if tr.Exists("escapes") || tr.Exists("loop/x") || !tr.Exists("absolute/text") {
			t.Error("exists left the root, or does not follow links within it")
		}
	})
}

func TestAttributesAreSmallRegularTextFiles(t *testing.T) {
	root := plant.Tree(t, map[string]string{
		"d/good":   "0x10ee\n",
		"d/empty":  "",
		"d/full":   strings.Repeat("x", AttributeMax),
		"d/long":   strings.Repeat("x", AttributeMax+1),
		"d/junk":   "\x00\xff\x01",
		"d/utf8":   "käse\n",
		"d/fifo":   "fifo",
		"d/socket": "socket",
		"d/dir":    "dir",
		"d/link":   "-> good",
	})
	huge := filepath.Join(root, "d/huge")
	plant.File(t, huge, "")
	if err := os.Truncate(huge, 1<<30); err != nil {
		t.Fatal(err)
	}
	bothWays(t, root, func(t *testing.T, tr *Tree) {
		d, err := tr.Dir("d")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for name, want := range map[string]string{"good": "0x10ee", "empty": "", "full": strings.Repeat("x", AttributeMax)} {
			if got, err := d.Text(name); got != want || err != nil {
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
			_, err := d.Text(name)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Join(root, "d", name)) {
				t.Errorf("%s: %v, want %q with the path", name, err, want)
			}
		}
	})
}

// TestOpenWhileFilesAreRenamed: the kernel answers openat2 with EAGAIN where a link climbs ("..") while any file
// of the machine is being renamed. That must not look like a card that has gone.
func TestOpenWhileFilesAreRenamed(t *testing.T) {
	root := plant.Tree(t, map[string]string{"a/b/file": "x", "links/to/b": "-> ../../a/b", "moving/dir1/x": "x"})
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
	tr, err := Root(root).Open()
	if err != nil {
		t.Fatal(err)
	}
	for range 20000 {
		d, err := tr.Dir("links/to/b")
		if err != nil {
			t.Error(err)
			break
		}
		d.Close()
	}
	close(stop)
	<-done
}
