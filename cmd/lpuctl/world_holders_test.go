package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// fate is what has become of a file of a claim.
type fate int

const (
	whole fate = iota
	cutOff
	removed
)

// claimed is a claim of the DRA driver with one LPU, and what has become of its record and its CDI
// file.
type claimed struct {
	lpu   int
	fates [2]fate
}

// known reports whether one of the files says which LPU the claim has.
func (c *claimed) known() bool { return slices.Contains(c.fates[:], whole) }

// puzzling reports whether there is something of the claim, and none of it says which LPU it has.
func (c *claimed) puzzling() bool { return !c.known() && slices.Contains(c.fates[:], cutOff) }

// app is lpuctl on this node.
func (w *world) app() *app {
	a := &app{App: cli.App{
		Root: host.Root(w.root), Terminal: cli.Terminal{Out: io.Discard, Err: io.Discard}, Log: slog.New(slog.DiscardHandler), Env: noEnvironment,
	}}
	if err := a.LoadConfig(); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// pods are those of this node.
func (w *world) pods(memory node.Memory) *pods.Node {
	of, err := w.app().Pods(memory)
	if err != nil {
		w.t.Fatal(err)
	}
	return of
}

// gate is that of serve. The one before ends.
func (w *world) gate() *owner.Gate {
	if w.serve != nil {
		ended, end := context.WithCancel(w.t.Context())
		end()
		w.serve.plugin.Node.Gate.Run(ended)
	}
	memory, err := node.RememberIn(host.Root(w.root))
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := w.pods(memory).PluginGate("", func(*plugin.Said) {})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// store is that of the driver.
func (w *world) store() *claim.Store {
	memory, err := node.RememberIn(host.Root(w.root))
	if err != nil {
		w.t.Fatal(err)
	}
	return &claim.Store{
		Root: host.Root(w.root), Dir: memory.Dir, SpecDir: filepath.Dir(w.specPath()), BootID: host.Now().Boot, Devices: addresses{},
		Inventory: func() *node.Snapshot {
			s := *w.serve.plugin.Node.Latest()
			s.ReadAt = time.Now()
			return &s
		},
	}
}

// addresses are devices with one LPU each, whose address is their name.
type addresses struct{}

func (addresses) Members(device string) ([]pci.Address, error) {
	a, err := cdi.ParseAddressName(device)
	return []pci.Address{a}, err
}

func claimUID(number int) string { return fmt.Sprintf("ac0ffee0-0000-4000-8000-%012d", number) }

// claim gives an LPU to a claim, or ends the claim that has it.
func (w *world) claim(i int) bool {
	for number, c := range w.claims {
		if c.lpu == i {
			for _, file := range w.claimFiles(number) {
				_ = os.Remove(file)
			}
			delete(w.claims, number)
			return true
		}
	}
	if w.leases[i] || !slices.Contains(w.offered(), i) {
		return false
	}
	w.claimsMade++
	_, err := w.store().Prepare(w.t.Context(), claim.Claim{
		Namespace: "ml", Name: "job", UID: claimUID(w.claimsMade), Requests: []claim.Request{{Name: "lpus", Devices: w.ids()[i : i+1]}},
	})
	if err != nil {
		w.fail("claim with LPU %d: %v", i, err)
	}
	w.claims[w.claimsMade] = &claimed{lpu: i}
	return true
}

// claimFiles are the record and the CDI file of a claim.
func (w *world) claimFiles(number int) []string {
	return []string{
		filepath.Join(w.root, node.StateDir, claim.DirName, claimUID(number)+".json"),
		cdi.ClaimFile(filepath.Dir(w.specPath()), claimUID(number)),
	}
}

// loseClaim removes a file of a claim, or cuts it off. A claim of which nothing is left is over.
func (w *world) loseClaim() bool {
	numbers := slices.Sorted(maps.Keys(w.claims))
	if len(numbers) == 0 {
		return false
	}
	number, which := numbers[w.rand.IntN(len(numbers))], w.rand.IntN(2)
	c, file := w.claims[number], w.claimFiles(number)[which]
	var err error
	switch {
	case c.fates[which] == removed:
		return false
	case w.rand.IntN(2) == 0:
		c.fates[which], err = removed, os.Remove(file)
	default:
		c.fates[which], err = cutOff, os.Truncate(file, int64(w.rand.IntN(100)))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if c.fates == [2]fate{removed, removed} {
		delete(w.claims, number)
	}
	return true
}

// lease leases an LPU to a user, as the arbiter writes it down, or gives it back.
func (w *world) lease(i int) bool {
	if !w.leases[i] && (w.dead(i) || !slices.Contains(w.offered(), i)) {
		return false
	}
	w.leases[i], w.leasesCut, w.leasesUnknown = !w.leases[i], false, false
	book := lease.NewBook()
	book.See(0, lease.View{Inventory: w.serve.plugin.Node.Latest().Inventory})
	for lpu, id := range w.ids() {
		if w.leases[lpu] {
			address, err := cdi.ParseAddressName(id)
			if err != nil {
				w.t.Fatal(err)
			}
			book.Wish(0, lease.Conn(lpu+1), lease.Peer{UID: 1000, User: "bob"},
				lease.Wish{Selection: lease.Selection{Count: 1, Must: []pci.Address{address}}})
		}
	}
	leases, _ := book.Records(host.Now().Boot, worldLPUs)
	if err := w.leasesFile().Write(leases); err != nil {
		w.t.Fatal(err)
	}
	return true
}

func (w *world) leasesFile() lease.File {
	run, err := host.Root(w.root).Resolve(path.Dir(lease.Socket))
	if err != nil {
		w.t.Fatal(err)
	}
	return lease.LeasesIn(run)
}

// loseLeases cuts off what the arbiter has written down, or puts it aside, as the arbiter does.
func (w *world) loseLeases() bool {
	file := w.leasesFile().Path
	if w.leasesCut {
		clear(w.leases)
		w.leasesCut, w.leasesUnknown = false, false
		return os.Remove(file) == nil
	}
	w.leasesCut = os.Truncate(file, 20) == nil // there may be none yet
	return w.leasesCut
}

// held reports whether somebody else has an LPU, by a claim or a lease, or may have it.
func (w *world) held(i int) bool {
	for _, c := range w.claims {
		if c.puzzling() || c.lpu == i && c.known() {
			return true
		}
	}
	return w.leases[i] || w.leasesUnknown
}

// checkHolders: who gives away leases knows which claims have which LPUs, or that it cannot be known.
func (w *world) checkHolders() error {
	memory, err := node.RememberIn(host.Root(w.root))
	if err != nil {
		return err
	}
	holders, unknown := w.pods(memory).Holders(w.t.Context())
	puzzling := false
	for _, c := range w.claims {
		puzzling = puzzling || c.puzzling()
		address, err := cdi.ParseAddressName(w.ids()[c.lpu])
		if err != nil || c.known() != (holders[address] != "") {
			return errors.Join(err, fmt.Errorf("lpu%d has a claim, whose files are %v, and the holders are %v", c.lpu, c.fates, holders))
		}
	}
	if puzzling != (unknown != nil) {
		return fmt.Errorf("claims %v: who has LPUs cannot be known: %w", w.claims, unknown)
	}
	return nil
}
