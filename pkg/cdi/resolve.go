package cdi

import (
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
	Name  string   `json:"name"`            // qualified: hyperaccel.ai/lpu=lpu0
	File  string   `json:"file"`            // the spec file that serves it
	Nodes []string `json:"nodes"`           // common ones too; HOST:CONTAINER where the path on the host is another than in the container
	Claim *Claim   `json:"claim,omitempty"` // that the device is of; then it has variables only
}

// Resolve returns the devices of a kind and those of claims, file by file in the order of the spec, as the runtimes' own CDI library
// resolves them from spec directories under root, the last of which has the highest priority. Files of the
// kind that the library refuses, conflicts, and directories that some runtimes do not read are findings. It gives up when ctx
// ends, because a spec directory may hold what never answers, such as a FIFO.
func Resolve(ctx context.Context, root string, specDirs []string, kind string) ([]Resolved, finding.List, error) {
	dirs, err := resolveDirs(root, specDirs)
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
		v := Validator{Root: root}
		findings, err := v.CheckDirs(specDirs)
		return append(resolved(cache, kind), resolved(cache, ClaimKind)...), append(findings, cacheFindings(cache, kind)...), err
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%s: reading the spec files does not end: %w", strings.Join(dirs, ", "), ctx.Err())
	}
}

// resolveDirs finds directories under root, as in a chroot.
func resolveDirs(root string, dirs []string) ([]string, error) {
	paths := make([]string, len(dirs))
	for i, dir := range dirs {
		var err error
		if paths[i], err = host.Root(root).Resolve(dir); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// ErrCrash says that a spec file makes the CDI library crash, and with it every runtime that reads its directory.
var ErrCrash = errors.New("a spec file makes the CDI library crash, and so every runtime that reads it")

// survive calls the CDI library and returns its panic as ErrCrash. Up to 1.1.1 the library panics on an empty item in a list of
// nodes, mounts or hooks.
func survive(read func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = ErrCrash
		}
	}()
	return read()
}

func resolved(cache *cdi.Cache, kind string) []Resolved {
	vendor, _ := parser.ParseQualifier(kind)
	files := cache.GetVendorSpecs(vendor)
	slices.SortFunc(files, func(a, b *cdi.Spec) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	devices := []Resolved{}
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

// cacheFindings are the errors of the library, file by file. That of a file of another kind is a note, because its maker has to
// mend it.
func cacheFindings(cache *cdi.Cache, kind string) (findings finding.List) {
	all := cache.GetErrors()
	for _, file := range slices.Sorted(maps.Keys(all)) {
		for _, err := range all[file] {
			_, ofClaim := ClaimUID(file)
			switch {
			case strings.Contains(err.Error(), `"`+kind+"="), strings.Contains(err.Error(), `"`+ClaimKind+"="): // a conflict
				findings.Add(finding.SpecRefused, file, err.Error(), "lpuctl cdi validate names the file to remove")
			case filepath.Base(file) == fileName(kind)+".json":
				findings.Add(finding.SpecRefused, file, err.Error(), "lpuctl cdi refresh")
			case ofClaim:
				findings.Add(finding.SpecRefused, file, err.Error(), byDriver+": rm "+file)
			default:
				findings.Add(finding.ForeignSpec, file, err.Error(), "it is not a file of "+kind+": ask whoever wrote it")
			}
		}
	}
	return findings
}
