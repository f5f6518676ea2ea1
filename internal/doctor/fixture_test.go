package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/await"
)

// patience is how long checks may take on a machine that has much to do.
var patience = await.Limit

// tree makes a machine of some files. A text that begins with "-> " is what a link leads to; a path that ends in / is a directory.
func tree(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	dir, err := os.MkdirTemp("", "lpu") //nolint:usetesting // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root := host.Root(dir)
	put(t, root, files)
	return root
}

func put(t *testing.T, root host.Root, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(string(root), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, link := strings.CutPrefix(text, "-> "); {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(file, 0o755)
		case link:
			err = os.Symlink(target, file)
		default:
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// one returns a scan that finds an LPU with a device file.
func one(change ...func(*discovery.LPU)) Scan {
	lpu := discovery.LPU{
		Name: "lpu0", Usable: true, Health: health.Healthy, Nodes: []discovery.Node{{Path: "/dev/ha0", Major: 510, Minor: 3, Verified: true}},
	}
	for _, c := range change {
		c(&lpu)
	}
	return func(context.Context) (*discovery.Inventory, error) {
		return &discovery.Inventory{LPUs: []discovery.LPU{lpu}}, nil
	}
}

// wants runs a check and compares its state, what it says or finds, and what it could not see.
func wants(t *testing.T, what string, c Check, state State, words ...string) Step {
	t.Helper()
	d := Diagnose(t.Context(), patience, []Check{c})
	if len(d.Steps) != 1 {
		t.Fatalf("%s: %d steps", what, len(d.Steps))
	}
	s := d.Steps[0]
	text := s.Says
	for _, f := range s.Findings {
		text += "\n" + f.String() + " " + f.Remedy
	}
	for _, u := range s.Unseen {
		text += "\n" + u.What + ": " + u.Why + ": " + u.Right
		if u.Right == "" {
			t.Errorf("%s: no right is named to see %s", what, u.What)
		}
	}
	if s.State != state {
		t.Errorf("%s: it is %s, not %s: %s", what, s.State, state, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s: no %q in %s", what, word, text)
		}
	}
	return s
}

// listen listens at a path of the machine until the test ends.
func listen(t *testing.T, root host.Root, name string) net.Listener {
	t.Helper()
	file := filepath.Join(string(root), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// listed is a line of proc/net/unix of a socket at a path that listens.
func listed(path string) string {
	return "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0005 01 20001 " + path + "\n"
}

// without are the ids of findings.
func ids(l finding.List) (all []string) {
	for _, f := range l {
		all = append(all, string(f.ID))
	}
	return all
}
