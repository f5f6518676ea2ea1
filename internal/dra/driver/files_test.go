//go:build dra

package driver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// members knows a device that is one LPU.
type members pci.Address

func (m members) Members(string) ([]pci.Address, error) {
	return []pci.Address{pci.Address(m)}, nil
}

// TestLostFilesAreWritten within five seconds, with the kubelet's word if both are lost, by a driver that does not own the node any more.
func TestLostFilesAreWritten(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	synctest.Test(t, func(t *testing.T) {
		n := node.New(log)
		lpu := inv.LPUs[1].Address
		const uid = "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01"
		named := []cdi.Claim{{Namespace: "ml", Name: "job", UID: uid, Requests: []cdi.ClaimRequest{
			{Name: "lpus", List: true, Devices: []cdi.ClaimDevice{{Name: "lpu1", LPUs: []pci.Address{lpu}}}},
		}}}
		var mu sync.Mutex
		said := named
		d := New(Options{
			Node: n, Log: log, Publisher: &dra.Publisher{}, KubeletDir: t.TempDir(),
			Claims: &claim.Store{Root: host.Root(root), Dir: filepath.Join(root, node.StateDir), SpecDir: filepath.Join(root, "var/run/cdi")},
			Gate:   &owner.Gate{File: owner.File{Dir: t.TempDir()}, Me: owner.DRA, Log: log},
			InUse: func(context.Context) ([]cdi.Claim, error) {
				mu.Lock()
				defer mu.Unlock()
				return said, nil
			},
		})
		n.Update(t.Context(), node.Spec{}, func(context.Context) (*discovery.Inventory, error) { return inv, nil })
		d.Claims.Devices, d.Claims.Confirm = members(lpu), nil
		d.Claims.Inventory = func() *node.Snapshot { return &node.Snapshot{Inventory: inv, ReadAt: time.Now()} }
		request := claim.Request{Name: "lpus", Devices: []string{"lpu1"}}
		c := claim.Claim{Namespace: "ml", Name: "job", UID: uid, Requests: []claim.Request{request}}
		if _, err := d.Claims.Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.keepFiles(ctx) })
		defer running.Wait()
		defer cancel()
		record, file := filepath.Join(d.Claims.Dir, claim.DirName, uid+".json"), cdi.ClaimFile(d.Claims.SpecDir, uid)
		for _, lost := range [][]string{{record}, {file}, {record, file}} {
			time.Sleep(10 * time.Second) // at rest
			for _, path := range lost {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Second)
			for _, path := range []string{record, file} {
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%v were lost, and %v", lost, err)
				}
			}
		}
		mu.Lock()
		said = nil
		mu.Unlock()
		other := &claim.Store{Root: d.Claims.Root, Dir: d.Claims.Dir, SpecDir: d.Claims.SpecDir}
		if err := other.Unprepare(ctx, uid); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
			t.Error("another process has given it back, and it is there again")
		}
	})
}
