package discovery

import (
	"context"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Memory is what a watcher (internal/watch) keeps between its scans. It decides which
// cards a scan reads, and what of them. The scan reads the ports above the LPUs too, and
// no configuration space, because a watcher does that beside its scans.
type Memory interface {
	// Reads are those of earlier scans that have not ended. A scan begins none of the same.
	Reads() *stall.Reads
	// Update returns the cards that a scan has found, in the same order, as they are or as
	// they were read before. A scan may call it twice.
	Update(ctx context.Context, cards []Card) []LPU
}

// Card is a card that a scan has found, or that should be there.
type Card struct {
	Address  pci.Address
	Index    int    // that its LPU gets
	Model    string // "": there is no card that could be read
	scan     *scan
	function function
}

// Known is what is not read of a card again. Nothing is known of a card in its zero
// value.
type Known struct {
	Serial string // the serial number; the card's management function may take long to answer
	Probe  Probe
	Sensed *Sensed // nil: the sensors are read
}

// Sensed is what the sensors of a card said.
type Sensed struct {
	Device  uint64          // [health.Reading.Device]; 0: not known
	Sensors *health.Sensors // nil: a read of the card did not end in time
}

// Read reads the card. If that takes longer than the scan, Hold keeps it readable.
func (c *Card) Read(ctx context.Context, known Known) LPU {
	f := c.function
	f.before = known
	return c.scan.readCard(ctx, c.Index, f)
}

// Hold keeps the card readable after its scan, until release is called.
func (c *Card) Hold() (release func()) {
	c.scan.holders.Add(1)
	return c.scan.release
}

// Shortage returns the shortage that a read of the scan had ([host.IsShortage]); nil if
// there was none. Then what was read of the card may be wrong.
func (c *Card) Shortage() error { return c.scan.tree.Shortage() }

// recall has the memory update the cards.
func (s *scan) recall(ctx context.Context, lpus []function) []LPU {
	cards := make([]Card, len(lpus))
	for i, f := range lpus {
		cards[i] = Card{Address: f.address, Index: i, scan: s, function: f}
		if f.readable() {
			cards[i].Model = f.model.Name
		}
	}
	found := s.Memory.Update(ctx, cards)
	for i, f := range lpus {
		if f.readable() {
			found[i].equip(f.model) // its mounts may have changed
		}
	}
	return found
}

// ShareNodes reports whether two LPUs claim the same node.
func ShareNodes(lpus []LPU) bool {
	var all []string
	for i := range lpus {
		all = append(all, lpus[i].claims()...)
	}
	slices.Sort(all)
	return len(slices.Compact(all)) < len(all)
}
