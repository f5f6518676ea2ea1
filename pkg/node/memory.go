package node

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// StateDir is the directory, under the root, with what lpuctl must not forget when it is started again.
const StateDir = "/var/lib/lpuctl"

// healthFile is the name of the file in StateDir with the health of the LPUs.
const healthFile = "health.json"

// Memory is what outlives a process. The zero value remembers nothing.
type Memory struct {
	Dir string // StateDir as a path of this machine; "": none
}

// RememberIn is the memory of the machine under root. The error is that of [host.Root.Resolve].
func RememberIn(root host.Root) (Memory, error) {
	dir, err := root.Resolve(StateDir)
	return Memory{dir}, err
}

// Cordons is the file with the cordons of the machine.
func (m Memory) Cordons() *health.CordonFile {
	if m.Dir == "" {
		return &health.CordonFile{}
	}
	return &health.CordonFile{Path: filepath.Join(m.Dir, "cordon.json")}
}

// healthRecord is the document in healthFile.
type healthRecord struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`    // "Health"
	Boot       string          `json:"boot"`    // [host.Moment]
	Healthy    map[string]bool `json:"healthy"` // by Device.ID
}

// health returns the health of each device as it was known last in this boot. It is empty if nothing is known.
func (m Memory) health() map[string]bool {
	var r healthRecord
	data, err := wholefile.Read(filepath.Join(m.Dir, healthFile), 1<<20)
	if m.Dir == "" || err != nil || json.Unmarshal(data, &r) != nil || r.Boot == "" || r.Boot != host.Now().Boot {
		return nil
	}
	return r.Healthy
}

// Seen are the LPUs that were here in this boot, as far as serve has seen them.
func (m Memory) Seen() (seen []discovery.Address) {
	for id := range m.health() {
		if a, err := cdi.ParseAddressName(id); err == nil {
			seen = append(seen, a)
		}
	}
	return seen
}

func (m Memory) keepHealth(healthy map[string]bool) error {
	data, err := json.MarshalIndent(healthRecord{discovery.APIVersion, "Health", host.Now().Boot, healthy}, "", "  ")
	if err != nil {
		return err
	}
	return m.keep(healthFile, append(data, '\n'))
}

// KeepRing writes the cabling of an inventory to [discovery.LastRingTable], if a ring table could be used and the file says
// something else. Later scans use it when the table breaks.
func (m Memory) KeepRing(inv *discovery.Inventory) error {
	if table := inv.LastRing(); table != nil {
		return m.keep(filepath.Base(discovery.LastRingTable), table)
	}
	return nil
}

// keep writes a file unless it is the same already.
func (m Memory) keep(name string, data []byte) error {
	if m.Dir == "" {
		return nil
	}
	path := filepath.Join(m.Dir, name)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := wholefile.MakeDir(m.Dir); err != nil {
		return err
	}
	return wholefile.Replace(path, data)
}

// healthBefore is the health of each device before a snapshot. Before the first one it is what memory or another program knows.
func (n *Node) healthBefore(ctx context.Context, inv *discovery.Inventory, before *Snapshot) map[string]bool {
	if before.Inventory == nil {
		n.started = n.Now()
		n.recalled = maps.Clone(n.Memory.health())
		if n.Recall != nil && n.doubtful(inv) {
			if n.recalled == nil {
				n.recalled = map[string]bool{}
			}
			maps.Copy(n.recalled, n.Recall(ctx))
		}
		return n.recalled
	}
	was := map[string]bool{}
	for _, d := range before.Devices {
		was[d.ID] = d.Healthy
	}
	return was
}

// doubtful tells whether there is an LPU whose health is not known and was not known before either.
func (n *Node) doubtful(inv *discovery.Inventory) bool {
	for _, l := range inv.LPUs {
		if _, known := n.recalled[cdi.AddressName(l.Address)]; l.Health == discovery.HealthUnknown && !known {
			return true
		}
	}
	return false
}

// remember writes what must outlive the process, where it has changed.
func (n *Node) remember(s *Snapshot) {
	healthy := map[string]bool{}
	for _, d := range s.Devices {
		if card, present := s.Cards[d.ID]; present && (s.Settled || s.Inventory.LPUs[card].Health != discovery.HealthUnknown) {
			healthy[d.ID] = d.Healthy
		}
	}
	err := n.Memory.KeepRing(s.Inventory)
	if !maps.Equal(healthy, n.kept) {
		if keepErr := n.Memory.keepHealth(healthy); keepErr != nil {
			err = keepErr
		} else {
			n.kept = healthy
		}
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != n.memoryError && text != "" {
		n.log.Warn("what is known of the LPUs cannot be kept for the next start", "error", text)
	}
	n.memoryError = text
}
