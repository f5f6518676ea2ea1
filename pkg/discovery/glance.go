package discovery

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// glance reads the little that tells whether the machine has changed since an inventory was made of it: which PCI functions and
// which ring table there are, and of each LPU its driver, its node, its link, its power, and what its driver says first. It costs a
// seventh of a scan (BenchmarkRest, BenchmarkScan). Two glances are equal if nothing of that has changed. It is "" if it cannot be taken.
func glance(ctx context.Context, root string, options *Options, inv *Inventory) string {
	t, err := host.Root(root).Open()
	if err != nil {
		return ""
	}
	defer t.Close()
	names, err := t.Names(pciDevices)
	if err != nil {
		return ""
	}
	slices.Sort(names)
	seen := make([]string, len(inv.LPUs), len(inv.LPUs)+4)
	var wg sync.WaitGroup
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		wg.Go(func() {
			text, err := within(ctx, options.readers, "glance "+l.Address.String(), options.CardDeadline, func() (string, error) {
				return glanceAt(t, l), nil
			})
			seen[i] = fmt.Sprint(text, err)
		})
	}
	tables, err := within(ctx, options.readers, "glance ring tables", options.CardDeadline, func() (string, error) {
		return fmt.Sprint(host.State(options.RingTable), t.State(InstalledRingTable), t.State(hyperdexRingTable)), nil
	})
	wg.Wait()
	return strings.Join(append(seen, strings.Join(names, " "), tables, fmt.Sprint(err)), "\n")
}

// glanceAt is the part of a glance that is about one LPU.
func glanceAt(t *host.Tree, l *LPU) string {
	dir, err := t.Dir(path.Join(pciDevices, l.Address.String()))
	if err != nil {
		return "gone"
	}
	defer dir.Close()
	driver, _ := dir.LinkName("driver")
	texts := []string{fmt.Sprint(dir.Inode()), driver}
	for _, n := range l.Nodes {
		st, err := t.Lstat(n.Path)
		whose, _ := t.Follow(path.Join(charDevices, fmt.Sprintf("%d:%d", n.Major, n.Minor))) // tells of new numbers where /dev cannot be seen
		texts = append(texts, fmt.Sprint(st.Ino, st.Rdev, st.Mode, st.Ctim, err), whose)
	}
	attributes := []string{"power/runtime_status", "power_state", "current_link_width", "current_link_speed", "dev_offline", "ready"}
	for _, n := range l.Nodes {
		attributes = append(attributes, "ha/"+path.Base(n.Path)+"/state") // of a Bertha (docs/health.md)
	}
	for _, name := range attributes {
		text, err := dir.Line(name)
		texts = append(texts, text)
		if err == nil && name == "power/runtime_status" && text == "suspended" {
			break // the rest would wake it
		}
	}
	return strings.Join(texts, " ")
}
