package cdi

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// RingTableDir is where the ring tables of containers are, on the host. A file in it is
// named by the hash of its content, and so never changes. It stays until the next boot
// empties /run, because a container that is stopped may name it.
const RingTableDir = "/run/lpuctl/ring"

// RingTable is the ring table of containers with some LPUs, as [ring.WriteContainer]
// makes it.
type RingTable struct {
	HostPath      string   `json:"hostPath"`      // in RingTableDir
	ContainerPath string   `json:"containerPath"` // where a program in the container reads it
	LPUs          []string `json:"lpus"`          // names
	Data          []byte   `json:"-"`
	addresses     []pci.Address
}

// RingTableOf returns the table for the LPUs at these positions of an inventory; nil if
// containers with them get none.
func RingTableOf(inv *discovery.Inventory, cards []int) *RingTable {
	t := &RingTable{}
	for _, card := range cards {
		l := &inv.LPUs[card]
		if l.RingTable.Path == "" || l.RingTable.Unfit != "" {
			return nil
		}
		// Two paths are those of two models: none is right for both.
		if t.ContainerPath != "" && t.ContainerPath != l.RingTable.Path {
			return nil
		}
		t.LPUs, t.ContainerPath = append(t.LPUs, l.Name), l.RingTable.Path
		t.addresses = append(t.addresses, l.Address)
	}
	if len(t.LPUs) == 0 {
		return nil
	}
	t.Data = inv.ContainerTable(cards)
	t.HostPath = path.Join(RingTableDir, tableName(t.Data))
	return t
}

// tableName is the file name of a ring table with this content.
func tableName(data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x.json", sum[:16])
}

// ringTable is RingTableOf as far as options allow. With mounts that were not seen there
// is no table: then it is not known whether there is a file to mount on.
func ringTable(inv *discovery.Inventory, cards []int, o Options) *RingTable {
	unseen := func(l discovery.LPU) bool {
		return slices.ContainsFunc(l.Mounts, func(m discovery.Mount) bool { return !m.Present })
	}
	if o.UncheckedMounts && slices.ContainsFunc(pick(inv, cards), unseen) {
		return nil
	}
	t := RingTableOf(inv, cards)
	if t == nil || o.TablesIn != "" && !isWhole(o.TablesIn, t.HostPath) {
		return nil
	}
	return t
}

// Mount is how a container gets the table.
func (t *RingTable) Mount() Mount {
	return Mount{t.HostPath, t.ContainerPath, "ring table of " + strings.Join(t.LPUs, " ")}
}

// Write puts the table in place under a root. Every container may read it.
func (t *RingTable) Write(root host.Root) error {
	dir, err := ringTableDir(root)
	if err == nil {
		_, err = t.WriteIn(dir)
	}
	return err
}

// ringTableDir is RingTableDir on this machine.
func ringTableDir(root host.Root) (string, error) {
	if root == "" {
		return "", errors.New("there is no place for ring tables")
	}
	return root.Resolve(RingTableDir)
}

// WriteIn puts the table into a directory, unless it is there, and returns its path.
func (t *RingTable) WriteIn(dir string) (file string, err error) {
	file = filepath.Join(dir, path.Base(t.HostPath))
	if isWholeFile(file) {
		return file, nil
	}
	if err := wholefile.MakeDir(dir); err != nil {
		return "", err
	}
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		_ = os.Remove(file) // containerd makes a directory of a file to mount that is not there
	}
	return file, wholefile.ReplaceUnsynced(file, t.Data)
}

// RingTables is the directory of ring tables on the machine that the file is for, as a
// path of this machine; "" if links on the way form a loop.
func (f File) RingTables() string {
	dir, _ := f.Root.Resolve(RingTableDir)
	return dir
}

// SpecAndTables is [Spec], after the ring tables that the spec names are put in place
// under a root. If not all can be written the spec names those that are in place, and
// tables says why.
func SpecAndTables(root host.Root, inv *discovery.Inventory, o Options) (spec *specs.Spec, findings finding.List, tables, err error) {
	d, err := devicesOf(inv, o)
	if err == nil {
		tables = d.writeTables(root)
		remakeTables(root, inv)
	}
	if tables != nil {
		o.TablesIn = root
		d, err = devicesOf(inv, o)
	}
	spec, findings, err = specOf(inv, o, d, err)
	return spec, findings, tables, err
}

// writeTables puts the tables in place, under a root, that the devices have. What cannot
// be written keeps no other from being written.
func (d *devices) writeTables(root host.Root) (failed error) {
	dir, err := ringTableDir(root)
	if err != nil {
		return err
	}
	written := map[string]bool{} // several devices have the same
	for _, c := range d.list {
		if c.Table != nil && !written[c.Table.HostPath] {
			written[c.Table.HostPath] = true
			_, err := c.Table.WriteIn(dir)
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

// tableOf is the ring table that a device of a spec names; "": it names none.
func tableOf(d specs.Device) string {
	for _, m := range d.ContainerEdits.Mounts {
		if m != nil && path.Dir(m.HostPath) == RingTableDir {
			return m.HostPath
		}
	}
	return ""
}

// HasRingTables reports whether the bytes of a spec have the devices of another one with
// the same ring tables, and whether these are in place.
func HasRingTables(root host.Root, have []byte, want *specs.Spec) bool {
	same := func(a, b specs.Device) bool { return a.Name == b.Name && tableOf(a) == tableOf(b) }
	return slices.EqualFunc(Devices(have), want.Devices, same) && missingTable(root, want) == ""
}

// isWhole reports whether a ring table under a root is in place: a file that every
// container may read, and that says what its name promises.
func isWhole(root host.Root, table string) bool {
	dir, err := root.Resolve(RingTableDir)
	return err == nil && isWholeFile(filepath.Join(dir, path.Base(table)))
}

func isWholeFile(file string) bool {
	const everyone = 0o444
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&everyone != everyone {
		return false
	}
	data, err := wholefile.Read(file, ring.MaxSize)
	return err == nil && tableName(data) == filepath.Base(file)
}

// missingTable returns a ring table that a spec names and that is not in place; "": each
// is.
func missingTable(root host.Root, spec *specs.Spec) string {
	for _, d := range spec.Devices {
		if table := tableOf(d); table != "" && !isWhole(root, table) {
			return table
		}
	}
	return ""
}
