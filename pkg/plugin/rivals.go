package plugin

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// rivalSuffix ends the names of the sockets of Xilinx' FPGA device plugin. Before it
// stands the name of a shell, which with amd.com/ before it is the resource that pods ask
// for. The plugin hands out every card that has the drivers of Alveo cards, so our LPUs
// too.
const rivalSuffix = "-fpga.sock"

// alveoVendor is the PCI vendor of the cards that Xilinx' plugin hands out.
const alveoVendor = "10ee"

// Times of looking for others. A socket is connected to no more often than each
// rivalPeriod, so that its owner's log stays empty.
const (
	rivalLook   = 10 * time.Second // between two looks for sockets
	rivalPeriod = 30 * time.Second // for which the answer of a socket holds
)

// rivals are the sockets of other plugins. The zero value has seen none.
type rivals struct {
	sockets []string          // that there were at the latest look
	next    time.Duration     // since boot: not to be looked for before
	asked   map[string]answer // by path
}

// answer says whether a process listened on a socket.
type answer struct {
	at    time.Duration // since boot
	alive bool
}

// Rivals returns a finding for each other device plugin that hands out the same cards, by
// its socket in the kubelet's directory. It is what [node.Node.Beside] asks for, and is
// called by one at a time. The inventory says whether there are cards that it would hand
// out. The sockets of a plugin that has ended are left where they are.
func (s *Server) Rivals(inv *discovery.Inventory) (all finding.List) {
	if !slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Vendor == alveoVendor }) {
		return nil
	}
	r, asked, now := &s.rivals, map[string]answer{}, host.SinceBoot()
	if now >= r.next {
		r.sockets, _ = filepath.Glob(filepath.Join(s.Dir, "*"+rivalSuffix))
		r.next = now + host.UntilBeat(rivalLook, now)
	}
	for _, path := range r.sockets {
		a, known := r.asked[path]
		if !known || now-a.at > rivalPeriod {
			listens, err := host.Listens(path)
			a = answer{now, listens || err != nil} // also if we may not connect to it
		}
		asked[path] = a
		if a.alive {
			shell := strings.TrimSuffix(filepath.Base(path), rivalSuffix)
			all.Add(finding.OtherPlugin, filepath.Base(path), fmt.Sprintf(
				"Xilinx' FPGA device plugin serves on this node, and gives the same cards to pods that ask for amd.com/%s", shell), "")
		}
	}
	r.asked = asked
	return all
}
