package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// The directories of sysfs that a scan reads, relative to the root. Other files use these
// names.
const (
	pciDrivers = "sys/bus/pci/drivers"
	sysClass   = "sys/class"
)

// CharDevices is the directory of sysfs, relative to the root, that has a link for each
// character device, named by its numbers.
const CharDevices = "sys/dev/char"

// ErrNoSysfs is the error if the root has no readable list of PCI devices. Then nothing
// is known about LPUs.
var ErrNoSysfs = errors.New("the list of PCI devices cannot be read")

// Remedy says what to do about the error of a scan; "" if it says it all.
func Remedy(err error) string {
	switch {
	case host.IsShortage(err):
		return host.ShortageRemedy(err)
	case errors.Is(err, ErrNoSysfs) && errors.Is(err, fs.ErrPermission):
		return "run as a user who may read sysfs there"
	case errors.Is(err, ErrNoSysfs):
		return "check --root, and that sysfs is mounted there (mount -t sysfs sysfs /sys)"
	}
	return ""
}

// defaultDeadline is Options.CardDeadline where none is given.
const defaultDeadline = time.Second

// Options are the options of a scan. The zero value searches for the built-in models.
type Options struct {
	Models []Model // nil: BuiltinModels()
	// CardDeadline is after what time a read of a card hangs that sleeps in the kernel;
	// 0: one second.
	CardDeadline time.Duration
	Management   bool // find the nodes of management functions too
	// RingTable is a file to read instead of the usual ones; a path of this machine, not of
	// the root.
	RingTable string
	// Expect is a ring table to compare with this machine before it is installed. The
	// cards that it names are expected, and no other table is read.
	Expect *ring.Table
	// LastRing is the cabling of an earlier scan, as [Inventory.LastRing] writes it. It
	// is used when the ring table cannot be used. nil: it is read from LastRingTable when
	// it is needed.
	LastRing *ring.Table

	// Seen are the LPUs that were here earlier in this boot. One that is gone is reported
	// and keeps its index.
	Seen []pci.Address
	// Known returns addresses of LPUs from elsewhere, such as the names in the spec that
	// is in place. It is asked if the ids of a function cannot be read: if that is one of
	// them it is still taken for an LPU, without a model and a node, so that no other LPU
	// gets its index. The error counts if it is that of a shortage. It may be nil.
	Known func() ([]pci.Address, error)

	// Policy is how the health of LPUs is judged; nil: health.DefaultPolicy().
	Policy *health.Policy

	// Unsensed leaves the sensors out, for those who say nothing of health: what a spec
	// has does not depend on it.
	Unsensed bool
	// Apart lets other processes read what may sleep in the kernel, so that this one can
	// end; nil: this one does.
	Apart *Apart
	// Memory is what the watcher whose scan it is keeps; nil: the scan is on its own.
	Memory Memory
}

// Scan reads the machine under root and returns what it found. A card that is broken or
// does not answer is in the inventory with the reasons. Scan fails only if the root
// cannot be read (ErrNoSysfs), if there is a shortage ([host.IsShortage]) or if ctx ends.
func Scan(ctx context.Context, root string, options Options) (*Inventory, error) {
	if options.Models == nil {
		options.Models = BuiltinModels()
	}
	t, err := host.Root(root).Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSysfs, err)
	}
	s := newScan(t, options)
	defer s.release()
	return s.run(ctx)
}

// scan is the state of one Scan.
type scan struct {
	Options
	tree     *host.Tree
	holders  atomic.Int32 // of the tree: the scan, and the cards that are late
	models   []*Model
	classes  map[string]classDevices // the classes that were read, by subsystem
	unlisted map[string]error        // why a class could not be read, or not all of it
	// The management functions that were found, with the models of their cards.
	managements map[pci.Address]*Model
	seen        map[pci.Address]bool // Options.Seen
	reads       *stall.Reads         // that have not ended
	seesDev     bool                 // there is a /dev in which nodes can be verified
	versions    sync.Map             // versions of drivers' modules, by driver
	problems    finding.List
	table       *TableRef             // the ring table that was found; it may be unusable
	unread      map[pci.Address]error // functions whose ids cannot be read

	lstat func(path string) (unix.Stat_t, error) // of a node in /dev
	names func(dir string) ([]string, error)     // of the PCI functions
}

// release closes the tree when neither the scan nor a card that is still read holds it
// any more.
func (s *scan) release() {
	if s.holders.Add(-1) == 0 {
		s.tree.Close()
	}
}

// Complete fills in the deadline and the policy if they were left out.
func (o *Options) Complete() {
	o.CardDeadline = cmp.Or(o.CardDeadline, defaultDeadline)
	if o.Policy == nil {
		policy := health.DefaultPolicy()
		o.Policy = &policy
	}
}

func newScan(t *host.Tree, options Options) *scan {
	options.Complete()
	s := &scan{
		Options: options, tree: t, models: enabled(options.Models), seesDev: t.Exists("dev"),
		classes: map[string]classDevices{}, unlisted: map[string]error{},
		managements: map[pci.Address]*Model{}, unread: map[pci.Address]error{}, lstat: t.Lstat, names: t.Names,
		seen: map[pci.Address]bool{}, reads: &stall.Reads{},
	}
	for _, a := range options.Seen {
		s.seen[a] = true
	}
	if s.Memory != nil {
		s.reads = s.Memory.Reads()
	}
	s.holders.Store(1)
	return s
}

func (s *scan) run(ctx context.Context) (*Inventory, error) {
	functions, err := s.functions(ctx)
	if err != nil {
		return nil, err
	}
	lpus := s.members(ctx, functions)
	s.readModels(ctx, lpus)
	s.reportUnmatched(ctx, lpus)
	inv := s.assemble(ctx, lpus)
	if err := cmp.Or(ctx.Err(), host.ShortageError(s.tree.Shortage())); err != nil {
		return nil, err
	}
	return inv, nil
}

// assemble makes the inventory of the LPUs that were found: it reads them, and binds the
// ring table or, if that cannot be used, the last cabling that could.
func (s *scan) assemble(ctx context.Context, found []function) *Inventory {
	table := s.Expect
	if table == nil {
		table = s.readRingTable(ctx)
		s.judgeHyperdex(ctx)
	}
	inv := &Inventory{APIVersion: statefile.APIVersion, Kind: "Inventory", Rings: []Ring{}}
	lpus := s.expected(found, table)
	inv.LPUs = s.readCards(ctx, lpus)
	if s.table != nil && !s.bindRings(inv, table) {
		if last := s.lastRing(ctx, found); last != nil {
			lpus = s.expected(found, last)
			inv.LPUs = s.readCards(ctx, lpus)
			s.keepRings(inv, last)
		}
	}
	if s.Memory != nil {
		ports := portsAbove(inv.LPUs)
		inv.Ports, _ = stall.Within(ctx, s.reads, "ports", s.CardDeadline, func() (map[pci.Address]health.Reading, error) {
			return s.readPorts(ports), nil
		})
	}
	s.reportUndecided(lpus)
	s.reportLoneManagement(ctx, lpus)
	s.reportSameCard(inv.LPUs)
	inv.Problems = append(finding.List{}, s.problems...)
	return inv
}

// expected are the LPUs that were found and those that should be there: the ring table
// names them, or an earlier scan saw them.
func (s *scan) expected(found []function, table *ring.Table) []function {
	return s.addKnown(s.addAbsent(slices.Clone(found), table))
}

// list returns the addresses of all PCI functions in ascending order.
func (s *scan) list() ([]pci.Address, error) {
	names, err := s.names(pci.Devices)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSysfs, err)
	}
	shown := s.tree.Shown(pci.Devices)
	addresses := make([]pci.Address, 0, len(names))
	for _, name := range names {
		a, err := pci.Parse(name)
		if err != nil {
			s.problems.Add(finding.OddPCIEntry, path.Join(shown, name), err.Error(),
				"the kernel makes no such entry: check what is mounted at "+shown)
			continue
		}
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, pci.Address.Compare)
	return addresses, nil
}

// functions lists and identifies the PCI functions. If one vanishes in between that is
// not known as an LPU, it may be an LPU that is being reset, so the list is read once
// more.
func (s *scan) functions(ctx context.Context) ([]function, error) {
	functions, err := s.identified(ctx)
	if err == nil && slices.ContainsFunc(functions, s.vanished) {
		s.problems = nil
		functions, err = s.identified(ctx)
	}
	return slices.DeleteFunc(functions, func(f function) bool {
		return host.IsAbsent(f.err) && !f.decided() && !s.listed(f.address)
	}), err
}

func (s *scan) identified(ctx context.Context) ([]function, error) {
	addresses, err := s.list()
	if err != nil {
		return nil, err
	}
	return s.identify(ctx, addresses), nil
}

// vanished reports whether a function was listed and was gone when it was read. A known
// LPU that is gone is reported as such.
func (s *scan) vanished(f function) bool {
	return host.IsAbsent(f.err) && !f.decided() && !s.seen[f.address]
}

// listed reports whether the list of PCI functions has one now.
func (s *scan) listed(a pci.Address) bool {
	_, err := s.tree.Lstat(a.Dir())
	return err == nil
}

// members finds the functions that are LPUs. It keeps the management functions and those
// it cannot read in the scan.
func (s *scan) members(ctx context.Context, functions []function) []function {
	var lpus []function
	for _, f := range functions {
		if f.model == nil {
			f.model = s.modelByClass(ctx, f.address)
		}
		switch {
		case f.model != nil:
			lpus = append(lpus, f)
		case f.manages != nil:
			s.managements[f.address] = f.manages
		case f.err != nil:
			s.unread[f.address] = f.err
		}
	}
	lpus = append(lpus, s.managed(lpus)...)
	return lpus
}

// managed finds the functions that must be LPUs, although their ids cannot be read,
// because they are the only other function of a card whose management function was found.
func (s *scan) managed(lpus []function) (found []function) {
	for _, management := range slices.SortedFunc(maps.Keys(s.managements), pci.Address.Compare) {
		var others []pci.Address
		for a := range s.unread {
			if a.SameCard(management) {
				others = append(others, a)
			}
		}
		if len(others) == 1 && !hasCard(lpus, management) {
			found = append(found, function{address: others[0], model: s.managements[management], err: s.unread[others[0]]})
			delete(s.unread, others[0])
		}
	}
	return found
}

// hasCard reports whether one of the LPUs is on the card that has an address.
func hasCard(lpus []function, a pci.Address) bool {
	return slices.ContainsFunc(lpus, func(f function) bool { return f.address.SameCard(a) })
}

// reportUndecided reports the functions that may be LPUs or not. If one is an LPU, all
// after it have wrong indices.
func (s *scan) reportUndecided(lpus []function) {
	for _, a := range slices.SortedFunc(maps.Keys(s.unread), pci.Address.Compare) {
		if !slices.ContainsFunc(lpus, func(f function) bool { return f.address == a || s.manages(a, f) }) {
			s.problems.Add(finding.UnreadableFunction, a.String(), fmt.Sprintf("cannot tell whether it is an LPU: %v", s.unread[a]),
				"see the kernel log for the device (dmesg | grep "+a.String()+")")
		}
	}
}

// manages reports whether a function must be the management function of an LPU's card, by
// its place. If the model of the LPU is not known either, it may be any.
func (s *scan) manages(a pci.Address, lpu function) bool {
	return a.SameCard(lpu.address) && slices.ContainsFunc(s.models, func(m *Model) bool {
		return m.Management != nil && m.Management.Function == a.Function && (lpu.model == nil || lpu.model == m)
	})
}

// reportLoneManagement reports cards that have a management function only. Their user
// function, the LPU, is missing. Where one is expected, its LPU says so; a function
// beside it whose ids cannot be read may be the LPU.
func (s *scan) reportLoneManagement(ctx context.Context, lpus []function) {
	for _, a := range slices.SortedFunc(maps.Keys(s.managements), pci.Address.Compare) {
		unread := slices.ContainsFunc(slices.Collect(maps.Keys(s.unread)), a.SameCard)
		if !unread && !hasCard(lpus, a) {
			says, remedy := s.lostFunction(ctx, a)
			s.problems.Add(finding.CardWithoutLPU, a.String(),
				fmt.Sprintf("management function of a card of model %s, but the card shows no LPU function%s", s.managements[a].Name, says), remedy)
		}
	}
}

// lostFunction says what is known of a card by its management function alone, and what to
// do. A card that runs its factory image shows no user function; any other has lost it.
func (s *scan) lostFunction(ctx context.Context, management pci.Address) (says, remedy string) {
	golden, _ := stall.Within(ctx, s.reads, "recovery of "+management.String(), s.CardDeadline, func() (bool, error) {
		return runsGolden(s.patient(), management), nil
	})
	if golden {
		return ": it runs its factory image", flashShell(management) + ", then power-cycle the server"
	}
	return "", "if the function stays away, power-cycle the server, and only then flash the LPU shell (xbmgmt program --base --device " +
		management.String() + "); first see dmesg, and have the kernel look for it again: echo 1 > /sys/bus/pci/rescan"
}

// readModels reads the class devices and the mounts that the models of the LPUs name.
func (s *scan) readModels(ctx context.Context, lpus []function) {
	for _, m := range s.models {
		if !slices.ContainsFunc(lpus, func(f function) bool { return f.model == m }) {
			continue
		}
		rules := m.Nodes
		if s.Management && m.Management != nil {
			rules = slices.Concat(rules, m.Management.Nodes)
		}
		for _, rule := range rules {
			subsystem, _ := classOf(rule)
			s.class(ctx, subsystem)
		}
		s.readMounts(ctx, m)
	}
}

// reportUnmatched reports functions that have a class device as the LPUs of a model have
// it, if that model has no ids and so matches nothing. That is Bertha without a config
// file, whose ids are not public.
func (s *scan) reportUnmatched(ctx context.Context, lpus []function) {
	for _, m := range s.models {
		if len(m.Match) > 0 {
			continue
		}
		for _, rule := range m.Nodes {
			subsystem, _ := classOf(rule)
			var entries []string
			for _, a := range slices.SortedFunc(maps.Keys(s.class(ctx, subsystem)), pci.Address.Compare) {
				if slices.ContainsFunc(lpus, func(f function) bool { return f.address == a }) {
					continue
				}
				entry, err := stall.Within(ctx, s.reads, "entry of "+a.String(), s.CardDeadline, func() (string, error) { return s.matchEntry(a) })
				if err == nil && !slices.Contains(entries, entry) {
					entries = append(entries, entry)
				}
			}
			if len(entries) > 0 {
				s.problems.Add(finding.ModelWithoutIDs, path.Join("/", sysClass, subsystem),
					fmt.Sprintf("there are devices of this class, as LPUs of model %s have them, but the PCI ids of that model are not known", m.Name),
					fmt.Sprintf("write the ids of these cards into %s:\nmodels:\n  - name: %s\n    match: [%s]",
						s.tree.Shown("/etc/lpuctl/config.yaml"), m.Name, strings.Join(entries, ", ")))
			}
		}
	}
}

// matchEntry returns the entry of a model's match in the config file that has the ids of
// a function.
func (s *scan) matchEntry(a pci.Address) (string, error) {
	dir, err := s.tree.Dir(a.Dir())
	if err != nil {
		return "", err
	}
	defer dir.Close()
	id := &identity{dir: dir}
	return fmt.Sprintf("{vendor: %q, device: %q}", id.get(idVendor), id.get(idDevice)), id.err
}

// class lists the devices of sys/class/SUBSYSTEM, once in a scan. For an empty subsystem
// there are none.
func (s *scan) class(ctx context.Context, subsystem string) classDevices {
	devices, known := s.classes[subsystem]
	if known || subsystem == "" {
		return devices
	}
	devices, err := stall.Within(ctx, s.reads, "class "+subsystem, s.CardDeadline, func() (classDevices, error) {
		return s.listClass(path.Join(sysClass, subsystem))
	})
	if err != nil {
		s.unlisted[subsystem] = err
		s.problems.Add(finding.UnreadableClass, path.Join("/", sysClass, subsystem), err.Error(), classRemedy(err))
	}
	s.classes[subsystem] = devices
	return devices
}

// classRemedy is what to do about a class that cannot be read; "": what the table of
// findings says.
func classRemedy(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run it as root, or as a user who may read the directory"
	}
	return ""
}

// readCards reads every card in its own goroutine, so that a card that hangs does not
// delay the others. The LPUs get their indices in the order of their addresses.
func (s *scan) readCards(ctx context.Context, lpus []function) []LPU {
	slices.SortFunc(lpus, func(a, b function) int { return a.address.Compare(b.address) })
	cards := make([]LPU, len(lpus))
	switch {
	case s.Memory != nil:
		cards = s.recall(ctx, lpus)
	case s.Apart != nil:
		s.readApart(ctx, lpus, cards)
	default:
		stall.InParallel(len(lpus), func(i int) { cards[i] = s.readCard(ctx, i, lpus[i]) })
	}
	refuseSharedNodes(cards)
	return cards
}

// refuseSharedNodes makes LPUs that claim the same node unusable, because it can belong
// to one of them only. Two nodes are the same if they have one path or one number. Nodes
// of management functions count, because a container may get them too.
func refuseSharedNodes(lpus []LPU) {
	owner := map[string]*LPU{}
	for i := range lpus {
		l := &lpus[i]
		for _, claim := range l.claims() {
			first := owner[claim]
			if first == nil {
				owner[claim] = l
				continue
			}
			if first == l {
				continue
			}
			for _, l := range []*LPU{first, l} {
				l.reason(finding.SharedNode, fmt.Sprintf("%s and %s both claim %s", first.Name, lpus[i].Name, claim), "")
				l.Nodes = []Node{}
				if l.Management != nil {
					l.Management = &Management{Address: l.Management.Address} // the other one may be kept
				}
			}
		}
	}
}

// reportSameCard reports LPUs that are part of another one's card: a virtual function
// (SR-IOV) of an LPU, or a second function whose ids match. Ids alone decide what is an
// LPU, so each keeps its index.
func (s *scan) reportSameCard(lpus []LPU) {
	for i := range lpus {
		l := &lpus[i]
		of := slices.IndexFunc(lpus, func(other LPU) bool {
			if l.Physical != nil {
				return other.Address == *l.Physical
			}
			return other.Address.SameCard(l.Address) && other.Physical == nil
		})
		switch {
		case of < 0 || of == i || l.Absent || lpus[of].Absent:
		case l.Physical != nil:
			s.problems.Add(finding.SameCard, l.Name, fmt.Sprintf("%s is a virtual function (SR-IOV) of %s, which is %s: both are one card",
				l.Address, lpus[of].Address, lpus[of].Name),
				fmt.Sprintf("unless it is meant to be an LPU of its own, take the virtual functions away: echo 0 > /%s/sriov_numvfs",
					lpus[of].Address.Dir()))
		default:
			s.problems.Add(finding.SameCard, l.Name,
				fmt.Sprintf("%s is a function of the same card as %s, which is %s", l.Address, lpus[of].Address, lpus[of].Name),
				"if the card is one LPU, narrow the match of its model in the config file by an id in which the functions differ, "+
					"or keep this one from being handed out: lpuctl cordon "+l.Address.String())
		}
	}
}

// claims returns what no other LPU can have: the paths of the LPU's nodes, and their
// numbers where they are known.
func (l *LPU) claims() []string {
	nodes := l.Nodes
	if l.Management != nil {
		nodes = slices.Concat(nodes, l.Management.Nodes)
	}
	var claims []string
	for _, n := range nodes {
		claims = append(claims, n.Path)
		if n.Major != 0 {
			claims = append(claims, fmt.Sprintf("device %d:%d", n.Major, n.Minor))
		}
	}
	return claims
}
