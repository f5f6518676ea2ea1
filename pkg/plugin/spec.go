package plugin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// specCheck is the CDI spec as it was found to hold what is needed.
type specCheck struct {
	nodes string      // what it was checked against: each LPU with its nodes
	file  os.FileInfo // nil: not found good
	err   error       // why it is not
}

// ensureSpec sees to it that the CDI spec on disk resolves the name of each LPU to its nodes, and writes it only if not:
// it belongs to the boot unit. It returns the ids of LPUs that do not resolve, which must not be handed out.
func (p *Plugin) ensureSpec(ctx context.Context, options Options, inv *discovery.Inventory) map[string]bool {
	nodes := nodesOf(inv)
	if options.Strategy != CDI || nodes == "" {
		p.remember(specCheck{nodes: nodes})
		return nil
	}
	p.mu.Lock()
	checked := p.checked
	p.mu.Unlock()
	if file, err := os.Stat(options.Spec.Path); err == nil && checked.file != nil && checked.nodes == nodes && sameFile(file, checked.file) {
		return nil
	}
	lacking, err := p.putSpec(ctx, inv, options)
	if ctx.Err() != nil {
		return nil
	}
	next := specCheck{nodes: nodes, err: err}
	if err == nil {
		next.file, next.err = os.Stat(options.Spec.Path)
	}
	if next.err != nil && (checked.err == nil || checked.err.Error() != next.err.Error()) {
		p.log.Error("the CDI spec cannot be put in place; LPUs it does not define are not handed out", "error", next.err)
	}
	p.remember(next)
	unresolved := map[string]bool{}
	for _, name := range lacking {
		unresolved[name] = true
	}
	return unresolved
}

func (p *Plugin) remember(check specCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked = check
}

// putSpec writes the spec if what is there lacks a name, and returns those that are lacking after that.
func (p *Plugin) putSpec(ctx context.Context, inv *discovery.Inventory, options Options) ([]string, error) {
	lacking, err := options.Spec.Lacks(inv)
	if err == nil && len(lacking) == 0 {
		return nil, nil
	}
	if err := p.writeSpec(ctx, inv, options); err != nil {
		return lacking, err
	}
	lacking, err = options.Spec.Lacks(inv)
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%s does not define %s", options.Spec.Path, strings.Join(lacking, ", "))
	}
	return lacking, err
}

func (p *Plugin) writeSpec(ctx context.Context, inv *discovery.Inventory, options Options) error {
	spec, _, err := cdi.Spec(inv, cdi.Options{Kind: options.Kind, Annotations: options.Annotations})
	if err != nil {
		return err
	}
	if err := options.Spec.Write(ctx, spec); err != nil {
		return err
	}
	p.log.Info("wrote the CDI spec", "file", options.Spec.Path, "devices", len(spec.Devices))
	return nil
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// nodesOf is each LPU that has nodes with these, in one text to compare.
func nodesOf(inv *discovery.Inventory) string {
	var all []string
	for i := range inv.LPUs {
		for _, n := range inv.LPUs[i].Nodes {
			all = append(all, ID(&inv.LPUs[i])+"="+n.Path)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
