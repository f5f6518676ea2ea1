package cdi

import (
	"cmp"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Edits is what a container gets with some LPUs, each line with its source. The spec, Allocate of the device plugin
// and `lpuctl cdi explain` are translations of it, so that all three say the same.
type Edits struct {
	Nodes  []Node     `json:"nodes"`
	Mounts []Mount    `json:"mounts"`
	Env    []Variable `json:"env"`
}

// Node is a device node, with the same path in the container as on the host.
type Node struct {
	Path   string `json:"path"`
	Source string `json:"source"`
}

// Mount is a directory or file of the host that the container sees read-only.
type Mount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	Source        string `json:"source"`
}

// Variable is an environment variable.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// NodePermissions are those that a container has on a node, as CDI and the kubelet spell them: read and write, no mknod.
const NodePermissions = "rw"

// DriverVersion is the variable with the version of the driver. A container gets it if all of its LPUs share one version.
const DriverVersion = "LPU_DRIVER_VERSION"

// EditsOf is what a container gets with LPUs, but for the variables that list them: their nodes in the order given, the mounts
// that this machine has (all with UncheckedMounts), the variables of their models and the driver's version.
func EditsOf(lpus []discovery.LPU, o Options) Edits {
	e := Edits{Nodes: []Node{}, Mounts: []Mount{}, Env: []Variable{}}
	for _, l := range lpus {
		for _, n := range nodesOf(l, o) {
			e.Nodes = append(e.Nodes, Node{n.Path, "device node of " + l.Name})
		}
		for _, m := range l.Mounts {
			if m.Present || o.UncheckedMounts {
				e.addMount(Mount{m.HostPath, cmp.Or(m.ContainerPath, m.HostPath), "model " + l.Model})
			}
		}
		for _, text := range l.Env {
			name, value, _ := strings.Cut(text, "=")
			if v := (Variable{name, value, "model " + l.Model}); !slices.Contains(e.Env, v) {
				e.Env = append(e.Env, v)
			}
		}
	}
	if version := sharedDriverVersion(lpus); version != "" {
		e.Env = append(e.Env, Variable{DriverVersion, version, "driver " + lpus[0].Driver})
	}
	return e
}

func nodesOf(l discovery.LPU, o Options) []discovery.Node {
	if o.Management && l.Management != nil {
		return slices.Concat(l.Nodes, l.Management.Nodes)
	}
	return l.Nodes
}

// addMount adds a mount. Of several on one path of the container the first counts.
func (e *Edits) addMount(m Mount) {
	if !slices.ContainsFunc(e.Mounts, func(have Mount) bool { return have.ContainerPath == m.ContainerPath }) {
		e.Mounts = append(e.Mounts, m)
	}
}

// sharedDriverVersion is the driver version of all LPUs, or "" where they differ.
func sharedDriverVersion(lpus []discovery.LPU) string {
	for _, l := range lpus {
		if l.DriverVersion != lpus[0].DriverVersion {
			return ""
		}
	}
	if len(lpus) == 0 {
		return ""
	}
	return lpus[0].DriverVersion
}

// container translates edits into those of a CDI spec.
func (e Edits) container() (c specs.ContainerEdits) {
	for _, n := range e.Nodes {
		c.DeviceNodes = append(c.DeviceNodes, &specs.DeviceNode{Path: n.Path, Permissions: NodePermissions})
	}
	for _, m := range e.Mounts {
		c.Mounts = append(c.Mounts, &specs.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, Options: []string{"ro", "nosuid", "nodev", "bind"},
		})
	}
	for _, v := range e.Env {
		c.Env = append(c.Env, v.Name+"="+v.Value)
	}
	return c
}
