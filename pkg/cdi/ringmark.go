package cdi

import (
	"encoding/json"
	"errors"
	"path"
	"reflect"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// ringMarkDir has a file for each LPU that was handed to a container, named by its
// address: a ringMark.
const ringMarkDir = RingTableDir + "/over"

const markMax = 64 << 10 // bytes

// ringMark is what was true when an LPU was handed to a container.
type ringMark struct {
	// Over is the file of the host over which the ring table of the container is mounted
	// ([host.Identity]). When another file takes its place, the kernel takes the mount
	// away, whatever the container does (rename(2), unlink(2)).
	Over string `json:"over"`
	// Table is the ring table of the container on the host; "": not known.
	Table string        `json:"table,omitempty"`
	LPUs  []pci.Address `json:"lpus,omitempty"` // of the container
}

// MarkRingTables notes which ring table a container has that gets the LPUs at these
// positions of an inventory, and over which file of the host.
func MarkRingTables(root host.Root, inv *discovery.Inventory, cards []int) (err error) {
	m := ringMark{}
	if t := RingTableOf(inv, cards); t != nil {
		m.Table = t.HostPath
	}
	for _, l := range pick(inv, cards) {
		m.LPUs = append(m.LPUs, l.Address)
	}
	for _, card := range cards {
		err = errors.Join(err, m.write(root, &inv.LPUs[card]))
	}
	return err
}

// MarkStart notes over which file of the host a container has its ring table that starts
// again. It keeps the table that it was made with.
func MarkStart(root host.Root, inv *discovery.Inventory, cards []int) (err error) {
	for _, card := range cards {
		l := &inv.LPUs[card]
		m, _ := readMark(root, l)
		err = errors.Join(err, m.write(root, l))
	}
	return err
}

// write writes the mark of an LPU as it is now, unless it is there.
func (m ringMark) write(root host.Root, l *discovery.LPU) error {
	if l.RingTable.HostPath == "" || root == "" {
		return nil
	}
	m.Over = identityUnder(root, l)
	file, err := root.Resolve(markOf(l))
	if err == nil {
		err = wholefile.MakeDir(path.Dir(file))
	}
	if err != nil {
		return err
	}
	if was, err := readMark(root, l); err == nil && reflect.DeepEqual(was, m) {
		return nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return wholefile.ReplaceUnsynced(file, data)
}

func markOf(l *discovery.LPU) string { return path.Join(ringMarkDir, l.Address.String()) }

func readMark(root host.Root, l *discovery.LPU) (m ringMark, err error) {
	data, err := root.Read(markOf(l), markMax)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	return m, err
}

// identityUnder is which file is on the host where a container with the LPU has its ring
// table.
func identityUnder(root host.Root, l *discovery.LPU) string {
	table, _ := root.Resolve(l.RingTable.HostPath) // where links form a loop there is none
	return host.Identity(table)
}

// RingTableNow reports what has become of the ring table of the container that has an
// LPU. It is lost if another file is on the host than when the container got the LPU. It
// is stale if it is that of other cables than there are now. An LPU that has no mark, as
// after a boot, is marked now.
func RingTableNow(root host.Root, inv *discovery.Inventory, l *discovery.LPU) (lost, stale bool) {
	if l.RingTable.HostPath == "" {
		return false, false
	}
	m, err := readMark(root, l)
	if host.IsAbsent(err) {
		_ = m.write(root, l) // or else the next time
	}
	if err != nil {
		return false, false
	}
	if cards, err := cardsAt(inv, m.LPUs); err == nil && m.Table != "" {
		now := RingTableOf(inv, cards)
		stale = now != nil && now.HostPath != m.Table
	}
	return m.Over != identityUnder(root, l), stale
}
