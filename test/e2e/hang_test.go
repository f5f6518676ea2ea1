package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// hangingTree serves a simulated node through FUSE; reads of one file never end.
type hangingTree struct {
	*fs.LoopbackNode
	file string // the end of the path of the file that hangs
}

func (n *hangingTree) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &hangingTree{child.(*fs.LoopbackNode), n.file}
}

func (n *hangingTree) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	handle, openFlags, errno := n.LoopbackNode.Open(ctx, flags)
	if errno == 0 && strings.HasSuffix(n.Path(nil), n.file) {
		return hangingFile{handle}, openFlags | fuse.FOPEN_DIRECT_IO, 0
	}
	return handle, openFlags, errno
}

type hangingFile struct{ fs.FileHandle }

// Read ends when the reader is killed, as a driver's read would not.
func (hangingFile) Read(ctx context.Context, _ []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	<-ctx.Done()
	return nil, syscall.EINTR
}

// hang mounts root so that the file hangs, and returns where.
func hang(t *testing.T, root, file string) string {
	t.Helper()
	loopback, err := fs.NewLoopbackRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	_, err = fs.Mount(here, &hangingTree{loopback.(*fs.LoopbackNode), file}, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, Options: []string{"dev"}}})
	if err != nil {
		t.Fatalf("mounting FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(here, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return here
}

func TestACardThatHangs(t *testing.T) {
	need(t)
	root := simulate(t)
	const card = "0000:45:00.1" // lpu2
	serial, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", card, "xmc.u.*/serial_num"))
	if err != nil || len(serial) != 1 {
		t.Fatal(serial, err)
	}
	for name, c := range map[string]struct {
		file    string // that hangs
		lpus    int    // that are listed
		reason  string // of the card that hangs, or of the machine
		refresh int    // exit code of cdi refresh
	}{
		"before the node is known":        {card + "/numa_node", 8, "read-stalled", 3},
		"after the node is known":         {filepath.Base(filepath.Dir(serial[0])) + "/serial_num", 8, "read-stalled", 0},
		"before it is known to be an LPU": {card + "/vendor", 7, "unreadable-function", 0},
	} {
		t.Run(name, func(t *testing.T) {
			here := hang(t, root, c.file)
			start := time.Now()
			r := run(t, "timeout", "-s", "KILL", "10", binary(t), "--root", here, "list", "-o", "json")
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("list took %v", took)
			}
			var inventory struct {
				LPUs []struct {
					Address, Health string
					Reasons         []struct{ ID string }
				}
				Problems []struct{ ID, Subject string }
			}
			if err := json.Unmarshal([]byte(r.stdout), &inventory); err != nil || r.code != 0 {
				t.Fatalf("exit code %d, %v: %s", r.code, err, r.stderr)
			}
			var got []string
			for _, l := range inventory.LPUs {
				if l.Address == card {
					got = append(got, l.Reasons[len(l.Reasons)-1].ID)
					if l.Health != "unknown" {
						t.Errorf("the card that hangs is %s", l.Health)
					}
				} else if l.Health != "healthy" {
					t.Errorf("%s suffers too: %v", l.Address, l)
				}
			}
			for _, p := range inventory.Problems {
				if p.Subject == card {
					got = append(got, p.ID)
				}
			}
			if len(inventory.LPUs) != c.lpus || !slices.Equal(got, []string{c.reason}) {
				t.Errorf("%d LPUs, reasons %v; want %d, %s", len(inventory.LPUs), got, c.lpus, c.reason)
			}
			spec := filepath.Join(root, "var/run/cdi", specName)
			_ = os.Remove(spec)
			if r := run(t, "timeout", "-s", "KILL", "10", binary(t), "--root", here, "cdi", "refresh"); r.code != c.refresh {
				t.Errorf("cdi refresh: exit code %d, want %d: %s", r.code, c.refresh, r.stderr)
			}
			hasNode := slices.Contains(deviceNames(t, string(read(t, spec))), "pci-0000-45-00.1")
			if want := c.reason == "read-stalled" && c.refresh == 0; hasNode != want {
				t.Errorf("the card that hangs is in the spec: %v, want %v", hasNode, want)
			}
		})
	}
}
