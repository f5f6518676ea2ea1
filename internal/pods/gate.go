package pods

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// PluginGate returns what the device plugin asks before it hands out LPUs. While the
// kubelet does not answer, what it said of claims last counts, and their files do. The
// kubelet is asked behind socket, if that is there. hear gets what it says.
func (n *Node) PluginGate(socket string, hear func(*plugin.Said)) (*owner.Gate, error) {
	claims := n.Claims()
	var logged atomic.Bool
	ask := func(ctx context.Context) (*plugin.Said, error) {
		said, err := n.Ask(ctx, socket)
		if err == nil {
			claims.Hear(said.Claims())
			hear(said)
		} else if !logged.Load() && !errors.Is(err, ErrNoKubelet) && ctx.Err() == nil {
			n.Log.Warn("the kubelet cannot be asked which pods have claims; their files tell", "error", err)
		}
		logged.Store(err != nil)
		return said, err
	}
	g := &owner.Gate{
		File: n.Owner(), Me: owner.Plugin, By: "lpuctl serve --owner", Log: n.Log,
		Others: func(ctx context.Context) (map[pci.Address]string, error) {
			_, _ = ask(ctx)
			return claims.Holders()
		},
		Twice:  plugin.From(ask, (*plugin.Said).Twice),
		Follow: filepath.Join(n.StateDir, claim.DirName),
	}
	return g, n.RespectLeases(g)
}

// RespectLeases lets a program that hands out LPUs to pods leave those alone that a user
// has leased or reserved.
func (n *Node) RespectLeases(gate *owner.Gate) error {
	files, err := lease.FilesOf(n.Root, n.StateDir)
	if err != nil {
		return err
	}
	gate.LeaseFiles = []string{files.Leases.Path, files.Reservations.Path}
	var fault node.LatestFault
	gate.Leased = func() (map[pci.Address]string, error) {
		held, err := lease.Held(n.Root, files.Leases, files.Reservations)
		if fault.IsNew(err) {
			lease.WarnUnread(n.Log, err)
		}
		if err != nil {
			return nil, lease.UnreadError{Err: err}
		}
		return held, nil
	}
	return nil
}
