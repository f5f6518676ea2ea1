// Package simulate writes simulated nodes: directory trees that lpuctl, with --root,
// reads as if they were servers with LPUs. A tree has the files, links and text formats
// with which the Linux kernel shows such a server, so that what works on the tree works
// the same way on hardware. The same Node always gives the same tree, byte for byte.
package simulate

import (
	"cmp"
	"fmt"
)

// Node describes a simulated node.
type Node struct {
	Profile string // name of one of Profiles
	LPUs    int    // 1 to 512; 0: the profile's own number
	// Functions is the number of PCI functions in all, at most 4096 more than the profile
	// and the faults need; 0: just those.
	Functions int
	Faults    []Fault // at most one for each part of a card, see FaultKind
	// Numbers are the device numbers of the LPUs' nodes, in the order of the LPUs.
	// Numbers of real devices, such as 10:229 (/dev/fuse), make nodes that can be opened.
	// An LPU beyond the end of the list has the numbers of the profile.
	Numbers []Numbers
	// Progress is called after each PCI function with the number of functions written and
	// the number of all. If it returns an error, Write stops with that error. It may be
	// nil.
	Progress func(done, total int) error
}

// Numbers are the device numbers of a character device, as in the dev file of a class
// device ("226:128").
type Numbers struct{ Major, Minor uint32 }

// String is the form of the dev file.
func (n Numbers) String() string { return fmt.Sprintf("%d:%d", n.Major, n.Minor) }

// Result says what was written.
type Result struct {
	LPUs        int  // faulty ones included
	Functions   int  // PCI functions, entries of sys/bus/pci/devices
	DeviceNodes bool // whether the caller may make device nodes; where not, the tree has no dev/
}

const (
	maxLPUs = 512  // 64 PCI domains of 8 LPUs
	maxFill = 4096 // ordinary functions that fill can place in PCI domain 0
)

// Write makes the tree in dir, which must be empty or not exist. It checks all of n
// before it writes: the error is then an *InvalidError. When writing fails midway, what
// was written stays.
func (n Node) Write(dir string) (Result, error) {
	m, err := n.Start(dir)
	if err != nil {
		return Result{}, err
	}
	return Result{LPUs: len(m.server.cards), Functions: len(m.server.functions), DeviceNodes: m.tree.nodes}, nil
}

// Start makes the tree as Write does, and returns the machine, which can change.
func (n Node) Start(dir string) (*Machine, error) {
	s, err := n.server()
	if err != nil {
		return nil, err
	}
	t, err := newTree(dir)
	if err != nil {
		return nil, err
	}
	s.write(t)
	if t.err != nil {
		return nil, fmt.Errorf("%w (the simulated node in %s is not complete)", t.err, dir)
	}
	t.live = true
	return &Machine{server: s, tree: t}, nil
}

func (n Node) server() (*server, error) {
	p, err := find("profile", n.Profile, Profiles(), func(p *Profile) string { return p.Name })
	if err != nil {
		return nil, err
	}
	if n.LPUs < 0 || n.LPUs > maxLPUs {
		return nil, invalid(fmt.Sprintf("give a number from 1 to %d", maxLPUs), "a simulated node cannot have %d LPUs", n.LPUs)
	}
	lpus := cmp.Or(n.LPUs, p.LPUs)
	if err := checkFaults(p, lpus, n.Faults); err != nil {
		return nil, err
	}
	s := &server{Node: n, Profile: p, nextNumber: p.gpus + lpus}
	s.system()
	for i := range p.gpus {
		s.graphics(i)
	}
	for domain := range (lpus + 7) / 8 {
		s.block(domain, min(8, lpus-8*domain))
	}
	s.apply()
	if err := s.checkNumbers(); err != nil {
		return nil, err
	}
	least := len(s.functions)
	if n.Functions != 0 && (n.Functions < least || n.Functions > least+maxFill) {
		remedy := fmt.Sprintf("give a number from %d to %d, or give none", least, least+maxFill)
		return nil, invalid(remedy, "this simulated node cannot have %d PCI functions", n.Functions)
	}
	s.fill(n.Functions)
	return s, nil
}

// checkNumbers checks that no two class devices have the same device numbers: the kernel
// gives them once.
func (s *server) checkNumbers() error {
	has := map[Numbers]string{}
	for _, f := range s.functions {
		for _, c := range f.nodes() {
			if other, taken := has[c.numbers]; taken {
				return invalid("give each LPU numbers of its own", "device numbers %s are those of %s and of %s", c.numbers, other, c.name)
			}
			has[c.numbers] = c.name
		}
	}
	return nil
}
