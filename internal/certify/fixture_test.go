package certify

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// unpack makes a tree of an archive.
func unpack(t *testing.T, data []byte) *tree {
	t.Helper()
	n := &tree{T: t, root: t.TempDir()}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	n.must(err)
	archive := tar.NewReader(compressed)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		n.must(err)
		if !filepath.IsLocal(h.Name) {
			t.Fatalf("%s leads out of the archive", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			n.must(os.MkdirAll(n.file(h.Name), 0o755))
		case tar.TypeSymlink:
			n.must(os.Symlink(h.Linkname, n.file(h.Name)))
		default:
			text, err := io.ReadAll(archive)
			n.must(err)
			n.must(os.WriteFile(n.file(h.Name), text, 0o644))
		}
	}
}

// TestFixture holds that a scan of a fixture finds what a scan of the node finds, and that no serial number
// and nothing of other devices is in it.
func TestFixture(t *testing.T) {
	for _, p := range simulate.Profiles() {
		n := newTree(t, simulate.Node{Profile: p.Name})
		n.scan()
		x, err := NewFixture(host.Root(n.root), n.inventory, n.record)
		n.must(err)
		data, err := x.Archive()
		n.must(err)
		again, err := x.Archive()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s: the same fixture gives other bytes (%v)", p.Name, err)
		}
		for file, text := range x.files {
			if strings.Contains(text, "XFL1SIM") {
				t.Errorf("%s: %s has a serial number: %q", p.Name, file, text)
			}
			if strings.Contains(text, "0x10de") || strings.Contains(file, "nvidia") {
				t.Errorf("%s: %s is of another device: %q", p.Name, file, text)
			}
		}
		copied := unpack(t, data)
		copied.scan()
		if diff := gocmp.Diff(summary(n.inventory), summary(copied.inventory)); diff != "" {
			t.Errorf("%s: a scan of the fixture: %s", p.Name, diff)
		}
		kinds, files := x.Contents()
		if files != len(x.files) || len(kinds) == 0 {
			t.Errorf("%s: %d files of %d: %q", p.Name, files, len(x.files), kinds)
		}
	}
}

// summary is what a fixture keeps of LPUs.
func summary(inv *discovery.Inventory) (lpus []discovery.LPU) {
	for _, l := range inv.LPUs {
		if l.Serial != "" {
			l.Serial = "a serial number"
		}
		for i := range l.Nodes {
			l.Nodes[i].Verified = false // there is no /dev
		}
		if l.Management != nil {
			for i := range l.Management.Nodes {
				l.Management.Nodes[i].Verified = false
			}
		}
		l.Ring, l.Reading, l.Equipment, l.Use = nil, discovery.LPU{}.Reading, discovery.Equipment{}, discovery.Use{}
		lpus = append(lpus, l)
	}
	return lpus
}

// TestFixtureOfSick holds that a card that says nothing, and one without a driver, come out as they are.
func TestFixtureOfSick(t *testing.T) {
	n := newTree(t, simulate.Node{Profile: "edge", LPUs: 4, Faults: []simulate.Fault{
		{Name: "all-ones", Index: 0}, {Name: "unbound", Index: 1}, {Name: "recovery", Index: 2}, {Name: "fifo", Index: 3},
	}})
	n.scan()
	x, err := NewFixture(host.Root(n.root), n.inventory, n.record)
	n.must(err)
	data, err := x.Archive()
	n.must(err)
	copied := unpack(t, data)
	copied.scan()
	for i, id := range []string{"no-answer", "no-driver", "recovery-shell", ""} {
		got := copied.inventory.LPUs[i].Reasons
		if id == "" && len(got) != 0 || id != "" && (len(got) != 1 || string(got[0].ID) != id) {
			t.Errorf("lpu%d of the fixture: %v, want %s", i, got, id)
		}
	}
}

// TestFixtureIsNotWrittenOver holds that a file that is there stays as it is.
func TestFixtureIsNotWrittenOver(t *testing.T) {
	n := newTree(t, simulate.Node{Profile: "edge"})
	n.scan()
	x, err := NewFixture(host.Root(n.root), n.inventory, n.record)
	n.must(err)
	n.write(n.file("mine"), "mine")
	if err := x.Write(n.file("mine")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if text, err := os.ReadFile(n.file("mine")); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q now, %v", text, err)
	}
	if err := x.Write(n.file("yours")); err != nil {
		t.Error(err)
	}
}

// TestRecordHasWhatAScanReads holds that a scan notes files and links, and no file that it could not read.
func TestRecordHasWhatAScanReads(t *testing.T) {
	n := newTree(t, simulate.Node{Profile: "edge", LPUs: 1})
	var end func()
	n.record, end = Watch(host.Root(n.root))
	_, err := discovery.Scan(context.Background(), n.root, discovery.Options{Apart: &discovery.Apart{}})
	end()
	n.must(err)
	reads := n.record.reads()
	dir := n.machine.Card(0).Address.Dir()
	if reads[dir+"/ready"] != "0x1\n" || !strings.HasSuffix(reads[dir+"/driver"], "/xocl") {
		t.Errorf("ready is %q and driver %q in the record", reads[dir+"/ready"], reads[dir+"/driver"])
	}
	for p := range reads {
		if _, err := os.Lstat(n.file(p)); err != nil {
			t.Errorf("in the record: %v", err)
		}
	}
}
