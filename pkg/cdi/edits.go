package cdi

import (
	"cmp"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Edits are container edits: what a container gets with some LPUs, each line with its
// source. The spec, Allocate of the device plugin and `lpuctl cdi explain` are
// translations of them, so that all three say the same.
type Edits struct {
	Nodes  []Node     `json:"nodes"`
	Mounts []Mount    `json:"mounts"`
	Env    []Variable `json:"env"`
	// Table is the ring table that is mounted; nil: there is none.
	Table *RingTable `json:"-"`
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

// String is NAME=VALUE.
func (v Variable) String() string { return v.Name + "=" + v.Value }

// NodePermissions are those that a container has on a node, as CDI and the kubelet spell
// them: read and write, no mknod.
const NodePermissions = "rw"

// EditsOf returns the container edits of a container's LPUs: those at these positions of
// an inventory, in this order. They are the nodes, the mounts that this machine has (all
// with UncheckedMounts), the ring table, and the variables of the models. The variables
// that describe the LPUs as a whole are those of [Container].
func EditsOf(inv *discovery.Inventory, cards []int, o Options) Edits {
	e := PartOf(inv, cards, o)
	e.mountTable(inv, cards, o)
	return e
}

// mountTable adds the ring table of the LPUs of a container. The table must be in place
// before a container is started.
func (e *Edits) mountTable(inv *discovery.Inventory, cards []int, o Options) {
	if e.Table = ringTable(inv, cards, o); e.Table != nil {
		e.Mounts = append(e.Mounts, e.Table.Mount())
	}
}

// PartOf returns the edits of LPUs that a container may get besides others. They say
// nothing of the LPUs as a whole, and so have no ring table.
func PartOf(inv *discovery.Inventory, cards []int, o Options) Edits {
	e := Edits{Nodes: []Node{}, Mounts: []Mount{}, Env: []Variable{}}
	for _, card := range cards {
		l := &inv.LPUs[card]
		for _, n := range nodesOf(l, o) {
			e.Nodes = append(e.Nodes, Node{n.Path, "device node of " + l.Name})
		}
		source := "model " + l.Model
		for _, m := range l.Mounts {
			at := cmp.Or(m.ContainerPath, m.HostPath)
			// Of several mounts at one path the first counts.
			taken := slices.ContainsFunc(e.Mounts, func(have Mount) bool { return have.ContainerPath == at })
			if (m.Present || o.UncheckedMounts) && !taken {
				e.Mounts = append(e.Mounts, Mount{m.HostPath, at, source})
			}
		}
		for _, text := range l.Env {
			name, value, _ := strings.Cut(text, "=")
			if !slices.ContainsFunc(e.Env, func(have Variable) bool { return have.String() == text }) {
				e.Env = append(e.Env, Variable{name, value, source})
			}
		}
	}
	return e
}

func nodesOf(l *discovery.LPU, o Options) []discovery.Node {
	if o.Management && l.Management != nil {
		return slices.Concat(l.Nodes, l.Management.Nodes)
	}
	return l.Nodes
}

// driverVersion is the variable with the driver version that all LPUs share; none where
// they differ.
func driverVersion(lpus []discovery.LPU) []Variable {
	differs := func(l discovery.LPU) bool { return l.DriverVersion != lpus[0].DriverVersion }
	if len(lpus) == 0 || lpus[0].DriverVersion == "" || slices.ContainsFunc(lpus, differs) {
		return nil
	}
	return []Variable{{DriverVersion, lpus[0].DriverVersion, "driver " + lpus[0].Driver}}
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
		c.Env = append(c.Env, v.String())
	}
	return c
}
