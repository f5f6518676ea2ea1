// Package proof starts a container with LPUs by each engine of this machine, and finds out
// in the container whether it has got what was promised.
package proof

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Promise is what a container gets with some LPUs, and what it must not have.
type Promise struct {
	LPUs   []string   `json:"lpus"`
	Nodes  []Node     `json:"nodes"`
	Others []Node     `json:"others"` // nodes of LPUs that the container did not ask for
	Env    []Variable `json:"env"`
	Mounts []Mount    `json:"mounts"`
	Table  *Table     `json:"table,omitempty"`
}

// Node is a device file.
type Node struct {
	LPU   string `json:"lpu"`
	Path  string `json:"path"`
	Major uint32 `json:"major"` // 0 with Minor: not known
	Minor uint32 `json:"minor"`
}

// Variable is an environment variable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Mount is a file or a directory of the host in the container.
type Mount struct {
	Path string `json:"path"` // in the container
	Host string `json:"host"`
	// Dev and Inode are st_dev and st_ino of Host, which a bind mount keeps; 0: not known.
	Dev   uint64 `json:"dev,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
}

// Table is the ring table of the container.
type Table struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
}

// PromiseOf is what a container gets with the LPUs of an inventory that have these names.
func PromiseOf(inv *discovery.Inventory, names []string, c *launch.Container) *Promise {
	p := &Promise{LPUs: names, Nodes: []Node{}, Others: []Node{}, Env: []Variable{}, Mounts: []Mount{}}
	promised := func(path string) bool {
		return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Path == path })
	}
	known := nodesOf(inv)
	for _, n := range c.Gets.Nodes {
		i := slices.IndexFunc(known, func(k Node) bool { return k.Path == n.Path })
		if i >= 0 {
			p.Nodes = append(p.Nodes, known[i])
		} else {
			p.Nodes = append(p.Nodes, Node{Path: n.Path})
		}
	}
	for _, n := range known {
		if !slices.Contains(names, n.LPU) && !promised(n.Path) {
			p.Others = append(p.Others, n)
		}
	}
	for _, v := range slices.Concat(c.Gets.Env, c.Env) {
		p.Env = slices.DeleteFunc(p.Env, func(have Variable) bool { return have.Name == v.Name })
		p.Env = append(p.Env, Variable{v.Name, v.Value})
	}
	table := c.TableOf()
	for _, m := range c.Gets.Mounts {
		if table != nil && m.ContainerPath == table.ContainerPath {
			continue
		}
		var st unix.Stat_t
		_ = unix.Stat(m.HostPath, &st) // else it is not known
		p.Mounts = append(p.Mounts, Mount{m.ContainerPath, m.HostPath, st.Dev, st.Ino})
	}
	if table != nil {
		p.Table = &Table{table.ContainerPath, table.Data}
	}
	return p
}

// nodesOf are the nodes of all LPUs, and of their management functions.
func nodesOf(inv *discovery.Inventory) (nodes []Node) {
	for _, l := range inv.LPUs {
		of := l.Nodes
		if l.Management != nil {
			of = slices.Concat(of, l.Management.Nodes)
		}
		for _, n := range of {
			nodes = append(nodes, Node{l.Name, n.Path, n.Major, n.Minor})
		}
	}
	return nodes
}

// Elsewhere returns why containers that engines of this machine start have other nodes or
// other specs than the machine below a root: nil if they have the same ones.
func (p *Promise) Elsewhere(specDir, specDirHere string) string {
	for _, n := range p.Nodes {
		var st unix.Stat_t
		if unix.Stat(n.Path, &st) != nil {
			return "there is no " + n.Path + " on this machine"
		}
		if unix.Major(st.Rdev) != n.Major || unix.Minor(st.Rdev) != n.Minor {
			return n.Path + " of this machine is another device"
		}
	}
	a, errA := os.Stat(specDir)
	b, errB := os.Stat(specDirHere)
	if cmp.Or(errA, errB) != nil || !os.SameFile(a, b) {
		return strings.TrimSuffix(specDirHere, "/") + " of this machine has other specs"
	}
	return ""
}
