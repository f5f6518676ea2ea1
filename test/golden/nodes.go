package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// node is a simulated node with what internal/simulate cannot make: files that an administrator wrote, cards that are gone.
type node struct {
	name string
	simulate.Node
	alter func(root string) error
}

func nodes() []node {
	unbound, recovery := simulate.Fault{Name: "unbound", Index: 2}, simulate.Fault{Name: "recovery", Index: 5}
	return []node{
		{"orion-8", simulate.Node{Profile: "orion"}, add(containerdFiles())},
		{"orion-4", simulate.Node{Profile: "orion", LPUs: 4}, nil},
		{"faults-few", simulate.Node{Profile: "orion", Faults: []simulate.Fault{unbound, recovery}}, killBus},
		{"faults-many", otherFaults(unbound.Name, recovery.Name), nil},
		{"lpu", simulate.Node{Profile: "lpu"}, nil},
		{"bertha", simulate.Node{Profile: "bertha"}, nil},
		{"edge", simulate.Node{Profile: "edge"}, nil},
		{"orion-16", simulate.Node{Profile: "orion", LPUs: 16}, nil},
		{"no-lpu", simulate.Node{Profile: "orion"}, unplug("0000:[48][3-6]:00.*")},
		{"no-table", simulate.Node{Profile: "orion"}, func(root string) error { return os.Remove(filepath.Join(root, hyperdexTable)) }},
		{"broken-table", simulate.Node{Profile: "orion"}, add(map[string]string{hyperdexTable: inputs()["broken.json"]})},
		{"absent-card", simulate.Node{Profile: "orion"}, func(root string) error {
			if err := add(map[string]string{"etc/lpuctl/ring.yaml": addressTable})(root); err != nil {
				return err
			}
			return unplug("0000:45:00.*")(root)
		}},
	}
}

// otherFaults is a node with a card for every kind of fault but those, so that faults that are new are here too.
func otherFaults(names ...string) simulate.Node {
	n := simulate.Node{Profile: "orion"}
	for _, kind := range simulate.FaultKinds() {
		if kind.Name != names[0] && kind.Name != names[1] {
			n.Faults = append(n.Faults, simulate.Fault{Name: kind.Name, Index: len(n.Faults)})
		}
	}
	n.LPUs = len(n.Faults)
	return n
}

const (
	functions     = "sys/bus/pci/devices"
	hyperdexTable = "opt/hyperdex/hrt/xclbin/table.json"
)

// killBus makes a card read as the kernel shows one that no longer answers: all ones.
func killBus(root string) error {
	function := filepath.Join(root, functions, "0000:86:00.1")
	err := os.WriteFile(filepath.Join(function, "config"), bytes.Repeat([]byte{0xff}, 64), 0o644)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(function, "current_link_width"), []byte("63\n"), 0o644)
}

// unplug takes PCI functions away.
func unplug(pattern string) func(root string) error {
	return func(root string) error {
		found, err := filepath.Glob(filepath.Join(root, functions, pattern))
		for _, link := range found {
			if err == nil {
				err = os.Remove(link)
			}
		}
		return err
	}
}

// add writes files.
func add(files map[string]string) func(dir string) error {
	return func(dir string) error {
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeTrees writes the nodes, unless they are there.
func writeTrees(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	for _, n := range nodes() {
		root := filepath.Join(dir, n.name)
		if _, err := n.Write(root); err != nil {
			return err
		}
		if n.alter != nil {
			if err := n.alter(root); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyTree copies a tree with its device nodes, FIFOs and links.
func copyTree(from, to string) error {
	cmd := exec.Command("cp", "-a", from, to)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
