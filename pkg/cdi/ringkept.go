package cdi

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// keptTableDir has a file for each ring table that was mounted in a container by its
// path, and not by a device of the spec: named like the table, a list of the addresses of
// its LPUs. It outlives a boot, which empties RingTableDir.
const keptTableDir = "/var/lib/lpuctl/ring"

const (
	keptTables  = 256     // the newest are kept: a container that is older is seldom started again
	keptListMax = 4 << 10 // bytes
)

// Keep has [SpecAndTables] put the table in place again after a boot, if it is right
// then.
func (t *RingTable) Keep(root host.Root) error {
	dir, err := root.Resolve(keptTableDir)
	if err == nil {
		err = wholefile.MakeDir(dir)
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(t.addresses)
	if err != nil {
		return err
	}
	if err := wholefile.Replace(filepath.Join(dir, path.Base(t.HostPath)), data); err != nil {
		return err
	}
	return removeOldest(dir)
}

// removeOldest removes the kept tables in a directory but the newest.
func removeOldest(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= keptTables {
		return err
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else another lpuctl has removed it
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range files[min(keptTables, len(files)):] {
		if err := os.Remove(filepath.Join(dir, old.Name())); err != nil && !host.IsAbsent(err) {
			return err
		}
	}
	return nil
}

// remakeTables puts the tables in place of those LPUs whose tables were kept. If the
// cables are others than then the table has another name, and a container that names the
// former one does not start.
func remakeTables(root host.Root, inv *discovery.Inventory) {
	dir, err := root.Resolve(keptTableDir)
	if err != nil {
		return
	}
	entries, _ := os.ReadDir(dir) // mostly there is no such directory
	for _, e := range entries {
		var addresses []pci.Address
		data, err := root.Read(path.Join(keptTableDir, e.Name()), keptListMax)
		if err != nil || json.Unmarshal(data, &addresses) != nil {
			continue
		}
		cards, err := cardsAt(inv, addresses)
		if err != nil {
			continue
		}
		if t := RingTableOf(inv, cards); t != nil {
			_ = t.Write(root) // if this directory takes no file, the tables of the spec say so
		}
	}
}
