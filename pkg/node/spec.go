package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Spec is the CDI spec that must define an LPU before it is handed out. The zero value needs none.
type Spec struct {
	File    cdi.File
	Options cdi.Options
}

// specCheck is the result of a look at the CDI spec on disk.
type specCheck struct {
	nodes      string      // of the inventory that the file was checked against, see nodesOf
	file       os.FileInfo // of a file that resolves every name; else nil
	unresolved []string    // names of LPUs that the file does not resolve, which must not be handed out
	err        error       // why it does not
}

// ensureSpec makes the CDI spec on disk resolve the name of each LPU to its nodes. It writes the file only if it does not:
// the boot unit owns it. The file is not read again as long as it and the nodes are those of the check before.
func (n *Node) ensureSpec(ctx context.Context, inv *discovery.Inventory, before specCheck) specCheck {
	check := specCheck{nodes: nodesOf(inv)}
	path := n.spec.File.Path
	if path == "" || check.nodes == "" {
		return check
	}
	if file, err := os.Stat(path); err == nil && before.file != nil && before.nodes == check.nodes && sameFile(file, before.file) {
		return before
	}
	check.unresolved, check.err = n.putSpec(ctx, inv)
	if check.err == nil {
		check.file, check.err = os.Stat(path)
	}
	if check.err != nil && ctx.Err() == nil && (before.err == nil || before.err.Error() != check.err.Error()) {
		n.log.Error("the CDI spec cannot be put in place; LPUs it does not define are not handed out", "error", check.err)
	}
	return check
}

// putSpec writes the spec if the file lacks a name, and returns the names that it still lacks after that.
func (n *Node) putSpec(ctx context.Context, inv *discovery.Inventory) ([]string, error) {
	lacking, err := n.spec.File.Lacks(inv)
	if err == nil && len(lacking) == 0 {
		return nil, nil
	}
	if err := n.writeSpec(ctx, inv); err != nil {
		return lacking, err
	}
	lacking, err = n.spec.File.Lacks(inv)
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%s does not define %s", n.spec.File.Path, strings.Join(lacking, ", "))
	}
	return lacking, err
}

func (n *Node) writeSpec(ctx context.Context, inv *discovery.Inventory) error {
	spec, _, err := cdi.Spec(inv, n.spec.Options)
	if err != nil {
		return err
	}
	if err := n.spec.File.Write(ctx, spec); err != nil {
		return err
	}
	n.log.Info("wrote the CDI spec", "file", n.spec.File.Path, "devices", len(spec.Devices))
	return nil
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// nodesOf lists each LPU that has device nodes with them, as one text to compare.
func nodesOf(inv *discovery.Inventory) string {
	var all []string
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			all = append(all, cdi.AddressName(l.Address)+"="+n.Path)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
