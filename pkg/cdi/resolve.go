package cdi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Resolved is a device as a runtime would inject it.
type Resolved struct {
	Name string `json:"name"` // qualified: hyperaccel.ai/lpu=lpu0
	File string `json:"file"` // the spec file that serves it
	// Nodes has common ones too; HOST:CONTAINER where the path on the host is another than
	// in the container.
	Nodes []string `json:"nodes"`
	Claim *Claim   `json:"claim,omitempty"` // that the device is of; then it has variables only
	// Runtimes are those that get this one by the name; none: all of them.
	Runtimes []string `json:"runtimes,omitempty"`
}

// Resolve returns the devices of our kind and those of claims, file by file in the order
// of the spec, as the runtimes' own CDI library resolves them from the directories that
// each runtime of the machine reads, or from these. Files of the kind that the library
// refuses, conflicts, and directories that some runtimes do not read are findings. It
// gives up when ctx ends, because a spec directory may hold what never answers, such as a
// FIFO.
func (v *Validator) Resolve(ctx context.Context, dirs []string) (all []Resolved, findings finding.List, err error) {
	all = []Resolved{}
	runtimes := map[string]string{} // by the order in which they read; of equals the first
	for _, order := range v.orders(dirs) {
		key := strings.Join(order.Dirs, ":")
		if runtimes[key] != "" {
			continue
		}
		devices, more, err := v.resolveIn(ctx, order.Dirs)
		if err != nil {
			return nil, nil, err
		}
		runtimes[key] = cmp.Or(order.Runtime, "none")
		findings = appendNew(findings, more...)
		for _, r := range devices {
			i := slices.IndexFunc(all, func(other Resolved) bool { return other.Name == r.Name && other.File == r.File })
			if i < 0 {
				i, all = len(all), append(all, r)
			}
			all[i].Runtimes = append(all[i].Runtimes, runtimes[key])
		}
	}
	for i := range all {
		if len(all[i].Runtimes) == len(runtimes) {
			all[i].Runtimes = nil
		}
	}
	checked, err := v.CheckDirs(dirs)
	return all, append(checked, findings...), err
}

func (v *Validator) resolveIn(ctx context.Context, order []string) ([]Resolved, finding.List, error) {
	dirs, err := resolveDirs(v.Root, order)
	if err != nil {
		return nil, nil, err
	}
	var cache *cdi.Cache
	done := make(chan error, 1)
	go func() {
		done <- survive(func() (err error) {
			for _, dir := range dirs { // the library reads no further, and does not say so
				if _, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			cache, err = cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
			return err
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", strings.Join(dirs, ", "), err)
		}
		return append(resolved(cache, v.Kind), resolved(cache, ClaimKind)...), cacheFindings(cache, v.Kind), nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%s: reading the spec files does not end: %w", strings.Join(dirs, ", "), ctx.Err())
	}
}

// appendNew appends the items that a list does not have yet.
func appendNew[S ~[]E, E comparable](list S, items ...E) S {
	for _, item := range items {
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return list
}

// resolveDirs finds directories under root, as in a chroot.
func resolveDirs(root host.Root, dirs []string) ([]string, error) {
	paths := make([]string, len(dirs))
	for i, dir := range dirs {
		var err error
		if paths[i], err = root.Resolve(dir); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// ErrCrash says that a spec file makes the CDI library crash, and with it every runtime
// that reads its directory.
var ErrCrash = errors.New("a spec file makes the CDI library crash, and so every runtime that reads it")

// survive calls the CDI library and returns its panic as ErrCrash. Up to 1.1.1 the
// library panics on an empty item in a list of nodes, mounts or hooks.
func survive(read func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = ErrCrash
		}
	}()
	return read()
}

func resolved(cache *cdi.Cache, kind string) (devices []Resolved) {
	vendor, _ := parser.ParseQualifier(kind)
	files := cache.GetVendorSpecs(vendor)
	slices.SortFunc(files, func(a, b *cdi.Spec) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	for _, spec := range files {
		for i, d := range spec.Devices {
			name := kind + "=" + d.Name
			if served := cache.GetDevice(name); served != nil && served.GetSpec() == spec {
				r := Resolved{Name: name, File: spec.GetPath(), Nodes: shownNodes(spec.Spec, i)}
				if uid, ok := ClaimUID(r.File); ok && kind == ClaimKind {
					r.Claim, _ = claimOf(spec.Spec, uid)
				}
				devices = append(devices, r)
			}
		}
	}
	return devices
}

// shownNodes are the nodes that a container gets with a device.
func shownNodes(spec *specs.Spec, i int) []string {
	nodes := []string{}
	for _, g := range effective(spec, i) {
		switch {
		case g.node == nil:
		case hostPath(g.node) == g.node.Path:
			nodes = append(nodes, g.node.Path)
		default:
			nodes = append(nodes, hostPath(g.node)+":"+g.node.Path)
		}
	}
	return nodes
}

func nodePaths(d specs.Device) []string {
	paths := []string{}
	for _, n := range d.ContainerEdits.DeviceNodes {
		if n != nil { // no runtime takes such a spec, but it can be parsed
			paths = append(paths, n.Path)
		}
	}
	return paths
}

// cacheFindings are the errors of the library, file by file. That of a file of another
// kind is a note, because its maker has to mend it.
func cacheFindings(cache *cdi.Cache, kind string) (findings finding.List) {
	all := cache.GetErrors()
	for _, file := range slices.Sorted(maps.Keys(all)) {
		for _, err := range all[file] {
			_, ofClaim := ClaimUID(file)
			id, remedy, message := finding.SpecRefused, "lpuctl cdi refresh", err.Error()
			switch {
			// An error that names a device is a conflict.
			case strings.Contains(message, `"`+kind+"="), strings.Contains(message, `"`+ClaimKind+"="):
				remedy = "lpuctl cdi validate names the file to remove"
			case filepath.Base(file) == fileName(kind)+".json":
			case ofClaim:
				remedy = byDriver + ": rm " + file
			default:
				id, remedy = finding.ForeignSpec, "it is not a file of "+kind+": ask whoever wrote it"
			}
			findings.Add(id, file, message, remedy)
		}
	}
	return findings
}
