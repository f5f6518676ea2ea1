// Package pods says which pod of a node has which LPU: of the device plugin as the
// kubelet names it, of the DRA driver by the claims that are prepared.
package pods

import (
	"context"
	"errors"
	"log/slog"
	"maps"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// Node is a node whose pods may have LPUs. All directories but Root are not below the
// root.
type Node struct {
	Root         host.Root
	StateDir     string // of lpuctl
	SpecDir      string // of the CDI spec
	PluginDir    string // where the kubelet and its plugins have their sockets
	PodResources string // socket under the root of the config file; "": the usual ones
	Log          *slog.Logger
}

// ErrNoKubelet says that the kubelet cannot be asked, because there is none.
var ErrNoKubelet = errors.New("there is no kubelet")

// silentError says that no kubelet listens at a socket that is there.
type silentError struct {
	error
	socket string
}

// Remedy says how the kubelet answers again.
func (e silentError) Remedy() string {
	return "start the kubelet; if none is to run on this node: sudo rm " + e.socket
}

// Unwrap returns the error of the connection.
func (e silentError) Unwrap() error { return e.error }

// Socket returns where the kubelet of the machine under root says which pods have LPUs:
// the first socket that is there of those that are named, by a flag or in the config
// file, and then of the usual ones; "" if there is none.
func Socket(root host.Root, named ...string) (string, error) {
	for _, socket := range append(named, plugin.PodResources()...) {
		if socket == "" {
			continue
		}
		resolved, err := root.Resolve(socket)
		if err != nil {
			return "", err
		}
		if host.State(resolved) != "" {
			return resolved, nil
		}
	}
	return "", nil
}

// Ask asks the kubelet which pods have LPUs, behind the first socket that is named and is
// there. The error may be [ErrNoKubelet].
func (n *Node) Ask(ctx context.Context, named ...string) (*plugin.Said, error) {
	socket, err := Socket(n.Root, append(named, n.PodResources)...)
	if err != nil {
		return nil, err
	}
	if socket == "" {
		return nil, ErrNoKubelet
	}
	said, err := (&plugin.Pods{Socket: socket}).Ask(ctx)
	if err == nil {
		return said, nil
	}
	if listens, unseen := host.Listens(socket); !listens && unseen == nil {
		return nil, silentError{err, socket}
	}
	return nil, err
}

// Claims returns the store of the claims that are prepared on the node.
func (n *Node) Claims() *claim.Store {
	return &claim.Store{Root: n.Root, Dir: n.StateDir, SpecDir: n.SpecDir, BootID: host.Now().Boot}
}

// Owner returns the file that says who hands out the LPUs, with the other signs of it.
func (n *Node) Owner() owner.File { return owner.File{Dir: n.StateDir, Sockets: n.PluginDir} }

// All returns which pods have LPUs, as the kubelet says, and the prepared claims. untold
// is why the kubelet does not say it; where there is none, no pod has LPUs.
func (n *Node) All(ctx context.Context) (said *plugin.Said, claims *claim.Store, untold error) {
	claims = n.Claims()
	said, untold = n.Ask(ctx)
	switch {
	case untold == nil:
		claims.Hear(said.Claims())
	case errors.Is(untold, ErrNoKubelet):
		said, untold = &plugin.Said{}, nil
	default:
		said = &plugin.Said{}
	}
	return said, claims, untold
}

// Holders returns the LPUs that pods have from plugin or driver, whether or not these
// run: pods outlive them. With an error it is not known of one of the two.
func (n *Node) Holders(ctx context.Context) (map[pci.Address]string, error) {
	if r, ok := recordings.Of(n.Root); ok {
		return r.holders()
	}
	said, claims, untold := n.All(ctx)
	all := said.InPods()
	claimed, unread := claims.Holders()
	maps.Copy(all, claimed)
	return all, errors.Join(untold, unread)
}
