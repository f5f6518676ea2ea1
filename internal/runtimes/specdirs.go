package runtimes

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// Order is in which order one container runtime reads spec directories. Of two files in
// different directories that define one name, that of the later directory counts.
type Order struct {
	Runtime string   // its name and its version; "" if no runtime is known to be installed
	Library string   // the release of its CDI library, as [CDILibrary] names it; "": not known
	Dirs    []string // below the root, the highest priority last
}

// Orders returns the order of each container runtime of the machine under root that knows
// CDI, also if it has CDI off. It reads files only and asks no daemon. A runtime whose
// directories are not known, and a machine without any, count as reading what the CDI
// library reads by default.
func Orders(ctx context.Context, root string) (all []Order) {
	for _, r := range Check(ctx, root, Options{filesOnly: true}) {
		if r.CDI == Unsupported {
			continue
		}
		if len(r.SpecDirs) == 0 && r.CDI != On {
			r.SpecDirs = bothDirs()
		}
		library := cmp.Or(CDILibrary(r.consumer(), r.Version), r.MaxCDIVersion)
		all = append(all, Order{strings.TrimSpace(r.Name + " " + r.Version), library, r.SpecDirs})
	}
	if len(all) == 0 {
		all = []Order{{Dirs: bothDirs()}}
	}
	return all
}

// consumer is the name by which [MaxCDI] knows the runtime: that of k3s is a containerd.
func (r *Runtime) consumer() string {
	if slices.ContainsFunc(distributions(), func(i installation) bool { return i.distribution == r.Name }) {
		return "containerd"
	}
	return r.Name
}
