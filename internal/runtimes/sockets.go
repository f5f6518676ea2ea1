package runtimes

import (
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// crioSocket is CRI-O's default (crio(8), --listen).
const crioSocket = "/run/crio/crio.sock"

// CRISocket is where a container runtime serves CRI.
type CRISocket struct {
	Runtime string // "containerd" or "cri-o"
	Path    string // on this machine
}

// CRISockets returns the sockets of CRI that are there under a root: the one that the
// kubelet is configured to use, and the usual ones.
func CRISockets(root string) (sockets []CRISocket) {
	c := &checker{machine: machine{host.Root(root)}}
	usual := []string{containerdSocket}
	if k := c.findKubelet(); k.socket != "" {
		usual = []string{k.socket, containerdSocket}
	}
	for _, d := range distributions() {
		usual = append(usual, d.socket)
	}
	for _, socket := range append(usual, crioSocket) {
		real, err := c.Resolve(socket)
		known := slices.ContainsFunc(sockets, func(s CRISocket) bool { return s.Path == real })
		if err != nil || known || !c.Exists(socket) {
			continue
		}
		name := "containerd"
		if strings.Contains(socket, "crio") {
			name = "cri-o"
		}
		sockets = append(sockets, CRISocket{name, real})
	}
	return sockets
}
