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
	file       os.FileInfo // of a file that resolves every name; else nil
	unresolved []string    // names of LPUs that it does not resolve to their nodes; they must not be handed out
	err        error       // why it does not
}

// ensureSpec makes the CDI spec on disk resolve the name of each LPU to its nodes. It writes the file only if it does not,
// because the boot unit owns it. The file is not read again as long as it and the nodes are as they were before.
func (n *Node) ensureSpec(ctx context.Context, spec Spec, inv *discovery.Inventory, before *Snapshot) specCheck {
	path := spec.File.Path
	if path == "" {
		return specCheck{}
	}
	file, err := os.Stat(path)
	if err == nil && sameFile(file, before.spec.file) && slices.EqualFunc(before.Inventory.LPUs, inv.LPUs, sameNodes) {
		return before.spec
	}
	var check specCheck
	if check.unresolved, check.err = n.putSpec(ctx, spec, inv); check.err == nil {
		check.file, _ = os.Stat(path) // if it is gone again, the next look puts it back
	}
	if check.err != nil && ctx.Err() == nil && fmt.Sprint(check.err) != fmt.Sprint(before.spec.err) {
		n.log.Error("the CDI spec cannot be put in place; LPUs it does not define are not handed out", "error", check.err)
	}
	return check
}

// putSpec writes the spec if the file lacks a name, and returns the names that it still lacks after that.
func (n *Node) putSpec(ctx context.Context, want Spec, inv *discovery.Inventory) ([]string, error) {
	file := want.File
	lacking, _ := file.Lacks(inv) // a file that cannot be read lacks every name
	if len(lacking) == 0 {
		return nil, nil
	}
	spec, _, err := cdi.Spec(inv, want.Options)
	if err == nil {
		err = file.Write(ctx, spec)
	}
	if err != nil {
		return lacking, err
	}
	n.log.Info("wrote the CDI spec", "file", file.Path, "devices", len(spec.Devices))
	lacking, err = file.Lacks(inv)
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%s does not define %s", file.Path, strings.Join(lacking, ", "))
	}
	return lacking, err
}

// sameFile tells whether a file is still the one that was looked at before, if there was one.
func sameFile(now, before os.FileInfo) bool {
	return before != nil && os.SameFile(now, before) && now.Size() == before.Size() && now.ModTime().Equal(before.ModTime())
}

func sameNodes(a, b discovery.LPU) bool {
	return a.Address == b.Address && slices.Equal(a.Nodes, b.Nodes)
}
