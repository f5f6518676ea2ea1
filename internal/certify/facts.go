package certify

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Record is what a scan has read of sysfs.
type Record struct {
	mu   sync.Mutex
	read map[string]string // bytes of files and texts of links, by path below the root
}

// Watch returns a record of what this process reads below a root until end is called.
func Watch(root host.Root) (r *Record, end func()) {
	r = &Record{read: map[string]string{}}
	return r, host.Watch(&host.Witness{Root: root, Linked: r.note, Read: func(p string, data []byte, err error) {
		if err == nil {
			r.note(p, string(data))
		}
	}})
}

func (r *Record) note(p, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read[strings.TrimPrefix(p, "/")] = text
}

// reads returns what was read so far.
func (r *Record) reads() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.read)
}

// Facts are what checks judge by.
type Facts struct {
	tree      *host.Tree
	inventory *discovery.Inventory
	functions []function
	// read is the record. What it has of a PCI function is under the function's directory
	// in sys/bus/pci/devices.
	read map[string]string
}

// function is a PCI function, by what the kernel's core says of it.
type function struct {
	pci.Address
	vendor, device, class string // as in sysfs: "0x10ee"
	driver                string // "": none is bound
	// names are those in its directory; nil for a function that is nothing of ours.
	names map[string]bool
}

// The ids of the functions of an Alveo U55C, as in sysfs.
const (
	xilinx         = "0x10ee"
	userDevice     = "0x505d"
	managingDevice = "0x505c"
)

// NewFacts returns the facts of a node by a scan with management functions and its record.
// What they read besides is what the kernel's core answers, and files that are no devices.
// The caller closes them.
func NewFacts(root host.Root, inv *discovery.Inventory, record *Record) (*Facts, error) {
	t, err := root.Open()
	if err != nil {
		return nil, err
	}
	f := &Facts{tree: t, inventory: inv, read: map[string]string{}}
	names, _ := t.Names(pci.Devices) // the scan says so if they cannot be listed
	dirs := map[string]string{}
	for _, name := range names {
		a, err := pci.Parse(name)
		if err != nil {
			continue
		}
		if real, err := t.Follow(a.Dir()); err == nil {
			dirs[strings.TrimPrefix(real, "/")] = a.Dir()
		}
		f.functions = append(f.functions, f.function(a))
	}
	slices.SortFunc(f.functions, func(a, b function) int { return a.Compare(b.Address) })
	for p, data := range record.reads() {
		f.read[underFunction(dirs, p)] = data
	}
	return f, nil
}

// Close releases the root.
func (f *Facts) Close() { f.tree.Close() }

// underFunction returns a path in the real directory of a PCI function as one in its
// directory in sys/bus/pci/devices.
func underFunction(dirs map[string]string, p string) string {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if of := dirs[dir]; of != "" {
			return of + strings.TrimPrefix(p, dir)
		}
	}
	return p
}

func (f *Facts) function(a pci.Address) function {
	fn := function{Address: a}
	dir, err := f.tree.Dir(a.Dir())
	if err != nil {
		return fn
	}
	defer dir.Close()
	fn.vendor, _ = dir.Line("vendor")
	fn.device, _ = dir.Line("device")
	fn.class, _ = dir.Line("class")
	fn.driver, _ = dir.LinkName("driver")
	if fn.vendor == xilinx || fn.driver == "ha" || fn.driver == "lpu" {
		fn.names = map[string]bool{}
		names, _ := dir.Names()
		for _, name := range names {
			fn.names[name] = true
		}
	}
	return fn
}

// at returns the function at an address; nil: there is none.
func (f *Facts) at(a pci.Address) *function {
	i := slices.IndexFunc(f.functions, func(fn function) bool { return fn.Address == a })
	if i < 0 {
		return nil
	}
	return &f.functions[i]
}

// cards are the user functions of U55Cs.
func (f *Facts) cards() (cards []function) {
	for _, fn := range f.functions {
		if fn.vendor == xilinx && fn.device == userDevice {
			cards = append(cards, fn)
		}
	}
	return cards
}

// driven are the cards under XRT's driver.
func (f *Facts) driven() []function {
	return slices.DeleteFunc(f.cards(), func(fn function) bool { return fn.driver != "xocl" })
}

// up are the cards under XRT's driver that answer, and are not being reset as far as that
// shows: then the driver takes most attributes away.
func (f *Facts) up() []function {
	return slices.DeleteFunc(f.driven(), func(fn function) bool {
		text, read := f.text(fn, "dev_offline")
		return !read || text != "0"
	})
}

// lpu returns the LPU at an address; nil: there is none.
func (f *Facts) lpu(a pci.Address) *discovery.LPU {
	for i := range f.inventory.LPUs {
		if l := &f.inventory.LPUs[i]; l.Address == a && !l.Absent {
			return l
		}
	}
	return nil
}

// text returns what the scan has read of an attribute of a function.
func (f *Facts) text(fn function, name string) (text string, read bool) {
	text, read = f.read[fn.Dir()+"/"+name]
	return strings.TrimSpace(text), read
}

// found is an attribute that the scan has read.
type found struct{ path, text string }

// below returns what the scan has read in the directories of a function whose names begin
// with a prefix, of attributes of a name.
func (f *Facts) below(fn function, prefix, name string) (all []found) {
	start := fn.Dir() + "/" + prefix
	for p, text := range f.read {
		if strings.HasPrefix(p, start) && path.Base(p) == name {
			all = append(all, found{p, strings.TrimSpace(text)})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.path, b.path) })
	return all
}

// has reports whether a function has a directory whose name begins with a prefix.
func (fn *function) has(prefix string) bool {
	for name := range fn.names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// shown is the path of an attribute of a function, for people.
func (f *Facts) shown(fn function, name string) string { return f.tree.Shown(fn.Dir() + "/" + name) }

// names lists a directory, sorted; none if it cannot be read.
func (f *Facts) names(dir string) []string {
	names, _ := f.tree.Names(dir)
	slices.Sort(names)
	return names
}

// withPrefix returns the names that begin with a prefix.
func withPrefix(names []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// mode returns the permissions of a file that is not opened.
func (f *Facts) mode(p string) (mode uint32, err error) {
	st, err := f.tree.Lstat(p)
	return st.Mode & 0o777, err
}

// isNode reports whether there is a character device.
func (f *Facts) isNode(p string) bool {
	st, err := f.tree.Lstat(p)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR
}

// none says that a file or directory is not there.
const none = "not there"
