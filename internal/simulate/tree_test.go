package simulate

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// listing says of every path below a directory what is there, so that two trees can be compared: mode
// and content, link target or device numbers.
type listing map[string]string

func list(t *testing.T, root string) listing {
	t.Helper()
	l := listing{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		p, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch info.Mode().Type() {
		case 0:
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			what += " " + string(data)
		case fs.ModeSymlink:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			what = "-> " + target
		case fs.ModeDevice | fs.ModeCharDevice:
			rdev := info.Sys().(*syscall.Stat_t).Rdev
			what += fmt.Sprintf(" %d:%d", unix.Major(rdev), unix.Minor(rdev))
		}
		l[p] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(l, ".")
	return l
}

// content of a file in the tree, without the newline at its end.
func (l listing) content(t *testing.T, p string) string {
	t.Helper()
	what, ok := l[p]
	mode, content, isFile := strings.Cut(what, " ")
	if !ok || !isFile || mode[0] != '-' {
		t.Fatalf("%s: no such file in the tree (%q)", p, what)
	}
	return strings.TrimSuffix(content, "\n")
}

// resolve follows the links in a path of the tree.
func (l listing) resolve(p string) (string, error) {
	done, rest := "", strings.Split(p, "/")
	for hops := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		if next == ".." || strings.HasPrefix(next, "../") {
			return "", fmt.Errorf("%s leaves the tree", p)
		}
		what, ok := l[next]
		if target, isLink := strings.CutPrefix(what, "-> "); isLink {
			if hops++; path.IsAbs(target) || hops > 40 {
				return "", fmt.Errorf("%s: bad link %s to %s", p, next, target)
			}
			rest = append(strings.Split(target, "/"), rest...)
			continue
		}
		if !ok && next != "." {
			return "", fmt.Errorf("%s: no %s", p, next)
		}
		done = next
	}
	return done, nil
}

func write(t *testing.T, n Node) (listing, Result) {
	t.Helper()
	dir := t.TempDir()
	result, err := n.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list(t, dir), result
}

// capture is a tree that capture.sh read from a real kernel (../../testdata).
func capture(t *testing.T) listing {
	t.Helper()
	f, err := os.Open("../../testdata/sysfs-u55c-x8-iommu.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	l := listing{}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return l
		}
		if err != nil {
			t.Fatal(err)
		}
		p := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			l[p] = "- " + string(data)
		case tar.TypeSymlink:
			l[p] = "-> " + h.Linkname
		}
	}
}

func TestLinksAreWrittenAsTheKernelWritesThem(t *testing.T) {
	links := 0
	for p, what := range capture(t) {
		target, isLink := strings.CutPrefix(what, "-> ")
		if !isLink {
			continue
		}
		links++
		if got := linkTarget(p, path.Join(path.Dir(p), target)); got != target {
			t.Errorf("%s: %q, the kernel has %q", p, got, target)
		}
	}
	if links < 300 {
		t.Errorf("the capture has %d links, expected hundreds", links)
	}
}

func TestWritesOnlyIntoAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Node{Profile: "lpu", LPUs: 1}.Write(dir)
	if err == nil || !strings.HasPrefix(err.Error(), dir+": not empty; ") {
		t.Errorf("into a directory with a file: %v", err)
	}
	if _, err := (Node{Profile: "lpu", LPUs: 1}).Write(kept); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("onto a file: %v", err)
	}
	if data, _ := os.ReadFile(kept); string(data) != "mine" || len(list(t, dir)) != 1 {
		t.Errorf("the directory is not as it was: %v", list(t, dir))
	}
	if _, err := (Node{Profile: "lpu", LPUs: 1}).Write(filepath.Join(dir, "new", "node")); err != nil {
		t.Errorf("into a directory that does not exist: %v", err)
	}
}

func TestFailureMidwaySaysSo(t *testing.T) {
	// So long a path that the top of the tree can be written and the bottom cannot.
	dir := t.TempDir()
	for len(dir) < unix.PathMax-120 {
		dir += "/" + strings.Repeat("d", min(200, unix.PathMax-100-len(dir)))
	}
	_, err := Node{Profile: "orion"}.Write(dir)
	if !errors.Is(err, unix.ENAMETOOLONG) || !strings.Contains(err.Error(), "simulated node in "+dir+" is not complete") {
		t.Errorf("unexpected error %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) == 0 {
		t.Error("nothing is left of what was written")
	}
}

func TestProgressEndsTheWriting(t *testing.T) {
	dir, enough := t.TempDir(), errors.New("enough")
	last := 0
	_, err := Node{Profile: "orion", Progress: func(done, total int) error {
		if done != last+1 || total != 40 {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		if last = done; done == 10 {
			return enough
		}
		return nil
	}}.Write(dir)
	if !errors.Is(err, enough) || last != 10 {
		t.Errorf("%v after %d", err, last)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, "sys/bus/pci/devices")); len(entries) != 10 {
		t.Errorf("%d functions are written", len(entries))
	}
}
