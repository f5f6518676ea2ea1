package discovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// The files in which a scan searches for a ring table, under the root. The first is what
// `lpuctl ring install` writes, the second is where HyperDex up to 1.4 puts its own
// (HW-40 of docs/hardware.md). (Later releases write below /tmp, where every user may
// write: HW-41.)
const (
	InstalledRingTable = "/etc/lpuctl/ring.yaml"
	HyperdexRingTable  = "/opt/hyperdex/hrt/xclbin/table.json"
)

// LastRingTable is the file, under the root, with the last cabling that could be used, in
// our own format. `lpuctl serve` and `lpuctl cdi refresh` write it, so that a table that
// breaks does not switch the rings off.
const LastRingTable = "/var/lib/lpuctl/last-ring.yaml"

// readRingTable finds and reads the ring table. It returns nil if there is none, which is
// no problem, or if the table cannot be used, which it adds to the problems. s.table is
// the table that was found.
func (s *scan) readRingTable(ctx context.Context) *ring.Table {
	paths := []string{s.RingTable}
	if s.RingTable == "" {
		paths = []string{s.real(InstalledRingTable), s.real(HyperdexRingTable)}
	}
	for _, p := range paths {
		data, err := s.tableFile(ctx, p)
		if s.RingTable == "" && (errors.Is(err, fs.ErrNotExist) || ofSome(p)) {
			continue
		}
		if err != nil {
			s.table = &TableRef{Path: p}
			fault := unread(p, err)
			s.problems.Add(fault.ID, p, fault.Message, fault.Remedy).At(p, 0)
			return nil
		}
		table, findings := ring.Parse(p, data)
		s.problems = append(s.problems, tableProblems(findings)...)
		s.table = &TableRef{Path: p}
		if findings.HasErrors() {
			return nil
		}
		s.table.Format = string(table.Format)
		return table
	}
	return nil
}

// judgeHyperdex adds what HyperDex makes wrongly of its own table, which it reads
// whatever table lpuctl uses.
func (s *scan) judgeHyperdex(ctx context.Context) {
	p := s.real(HyperdexRingTable)
	if s.table != nil && s.table.Path == p || ofSome(p) {
		return // it is judged as a whole, or not that of the node
	}
	data, err := stall.Within(ctx, s.reads, p, s.CardDeadline, func() ([]byte, error) { return s.readTable(followLink(p)) })
	if err != nil {
		return // there is none, or anybody could have written it
	}
	_, findings := ring.Parse(p, data)
	for _, f := range findings {
		if f.ID == finding.RingFileOrder || f.ID == finding.RingHyperdex {
			s.problems = append(s.problems, f)
		}
	}
}

// real is the path on this machine of one of the root. Where links form a loop it stays
// as it is, so that reading it fails.
func (s *scan) real(p string) string {
	real, err := s.tree.Resolve(p)
	if err != nil {
		return s.tree.Shown(p)
	}
	return real
}

// tableFile reads the file of a ring table within the deadline of a card.
func (s *scan) tableFile(ctx context.Context, path string) ([]byte, error) {
	data, err := stall.Within(ctx, s.reads, path, s.CardDeadline, func() ([]byte, error) { return s.readTable(followLink(path)) })
	if errors.Is(err, stall.ErrStalled) {
		err = fmt.Errorf("it does not answer within %v", s.CardDeadline)
	}
	return data, err
}

// unread is what is wrong with the file of a ring table that was not read, and what to do
// about it.
func unread(path string, err error) finding.Finding {
	id, remedy := finding.RingUnreadable, ""
	if why, untrusted := errors.AsType[*wholefile.UntrustedError](err); untrusted {
		id, remedy = finding.RingUnsafe, unsafeRemedy(path, why)
	}
	return finding.New(id, path, host.Reason(err).Error(), remedy)
}

// readTable reads a ring table that can be trusted. Of one that is too large it reads so
// much that [ring.Parse] says so.
func (s *scan) readTable(path string) ([]byte, error) {
	data, err := wholefile.ReadTrusted(path, ring.MaxSize)
	_ = s.tree.Note(err)
	if errors.Is(err, wholefile.ErrTooLarge) {
		return data, nil
	}
	return data, err
}

// followLink is the file to which a symbolic link leads that root or the user of this
// process has made: each file of a ConfigMap is such a link in a pod. Any other path
// stays as it is: its reader refuses the link of another user.
func followLink(path string) string {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return path
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// unsafeRemedy is what is done about a table that cannot be trusted.
func unsafeRemedy(path string, why *wholefile.UntrustedError) string {
	if why.Regular {
		return "look at what it says; then: lpuctl ring install " + path
	}
	return "put the ring table there as a regular file"
}

// tableProblems removes findings that only describe how a server is built: it has several
// rings, or a ring that does not follow the addresses. `lpuctl ring check` prints them.
func tableProblems(findings finding.List) finding.List {
	return slices.DeleteFunc(findings, func(f finding.Finding) bool { return f.ID == finding.RingSeveral || f.ID == finding.RingOrder })
}

// addAbsent adds the cards that the table names by address and that were not found. So
// the cards after them keep their index. If the table leaves the PCI function out, it is
// the same as that of the other cards.
func (s *scan) addAbsent(lpus []function, table *ring.Table) []function {
	if table == nil {
		return lpus
	}
	digit := uint8(0)
	if len(lpus) > 0 {
		digit = lpus[0].address.Function
	}
	for _, a := range table.Addresses(digit) {
		if !hasCard(lpus, a) {
			lpus = append(lpus, function{address: a, err: s.unread[a]})
		}
	}
	return lpus
}

// addKnown adds the cards that an earlier scan found and this one did not, and those that
// Options.Known knows and that cannot be read.
func (s *scan) addKnown(lpus []function) []function {
	var known []pci.Address
	if len(s.unread) > 0 && s.Known != nil {
		all, err := s.Known()
		_ = s.tree.Note(err)
		known = slices.DeleteFunc(all, func(a pci.Address) bool { return s.unread[a] == nil })
	}
	for _, a := range slices.AppendSeq(known, maps.Keys(s.seen)) {
		if !slices.ContainsFunc(lpus, func(f function) bool { return f.address == a }) {
			lpus = append(lpus, function{address: a, err: s.unread[a], known: true})
		}
	}
	return lpus
}

// bindRings applies a ring table to the LPUs. It returns false if that cannot be done;
// nil is a table that cannot be used.
func (s *scan) bindRings(inv *Inventory, table *ring.Table) bool {
	cards := inv.RingCards()
	for i := range cards {
		if s.seen[inv.LPUs[i].Address] { // the table counted it when it was there
			cards[i].Absent = false
		}
	}
	cabling, findings := ring.Bind(table, cards)
	s.problems = append(s.problems, tableProblems(findings)...)
	if cabling == nil {
		return false
	}
	inv.RingTable = s.table
	for _, r := range cabling.Rings {
		if len(r.Cards) > 1 {
			inv.addRing(r)
		}
	}
	inv.markDeadLinks()
	return true
}

// lastRing returns the last cabling that could be used. It returns nil if there is none,
// or if it does not name each LPU that was found: then it is not the cabling of these
// cards.
func (s *scan) lastRing(ctx context.Context, lpus []function) *ring.Table {
	table := s.LastRing
	if table == nil {
		path := s.real(LastRingTable)
		data, err := s.tableFile(ctx, path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var findings finding.List
		if err == nil {
			table, findings = ring.Parse(path, data)
		} else {
			findings = finding.List{unread(path, err)}
		}
		if fault := findings.FirstError(); fault != nil {
			s.lastUnusable(path, fault, err)
			return nil
		}
	}
	if slices.ContainsFunc(lpus, func(f function) bool { return !slices.Contains(table.Addresses(f.address.Function), f.address) }) {
		return nil
	}
	return table
}

// lastUnusable adds what is wrong with the file of the last cabling. Programs write a
// file again, but nothing in place of what is none.
func (s *scan) lastUnusable(path string, fault *finding.Finding, err error) {
	id, remedy := finding.RingUnreadable, "correct the ring table, and lpuctl serve and cdi refresh write this file again"
	if why, untrusted := errors.AsType[*wholefile.UntrustedError](err); untrusted {
		id = fault.ID
		if !why.Regular {
			remedy = "remove it: rm -r " + path + "; then " + remedy
		}
	}
	s.problems.Add(id, path, "the last cabling cannot be used either: "+fault.Message, remedy).At(path, 0)
}

// keepRings applies the last cabling that could be used in place of the ring table that
// was found.
func (s *scan) keepRings(inv *Inventory, last *ring.Table) {
	broken := s.table
	s.table = &TableRef{Path: LastRingTable, Format: string(last.Format), Kept: true}
	if s.bindRings(inv, last) {
		const message = "it cannot be used; the last cabling that could be used stays in force"
		s.problems.Add(finding.RingKept, broken.Path, message, "").At(broken.Path, 0)
	}
}

// LastRing returns the cabling as a ring table in our own format that names each LPU by
// its PCI address, for [Options.LastRing]. It returns nil if no ring table could be used,
// or if the cabling is an earlier one itself.
func (inv *Inventory) LastRing() []byte {
	if inv.RingTable == nil || inv.RingTable.Kept {
		return nil
	}
	cabling, ids := inv.cabling(), make([]string, len(inv.LPUs))
	for i, l := range inv.LPUs {
		ids[i] = l.Address.String()
		if l.Ring == nil { // a card without a cable, which the table must name too
			cabling.Rings = append(cabling.Rings, ring.Ring{Cards: []int{i}, Closed: true})
		}
	}
	return ring.WriteLpuctl(cabling, ids)
}

// RingCards returns the LPUs in the form to which pkg/ring binds a table.
func (inv *Inventory) RingCards() []ring.Card {
	cards := make([]ring.Card, len(inv.LPUs))
	for i, l := range inv.LPUs {
		cards[i] = ring.Card{Name: l.Name, Address: l.Address, Serial: l.Serial, Absent: l.Absent}
	}
	return cards
}

// addRing adds a ring of the table to the inventory.
func (inv *Inventory) addRing(r ring.Ring) {
	made := Ring{ID: fmt.Sprintf("ring%d", len(inv.Rings)), Closed: r.Closed, Members: []string{}, DeadLinks: [][2]string{}}
	made.Leftward, made.OneCable = r.Leftward(), r.Closed && !r.Looped()
	n := len(r.Cards)
	for i, card := range r.Cards {
		l := &inv.LPUs[card]
		made.Members = append(made.Members, l.Name)
		l.Ring = &RingPlace{ID: made.ID, Position: i}
		if i > 0 || r.Closed {
			l.Ring.Previous = inv.LPUs[r.Cards[(i+n-1)%n]].Name
		}
		if i == n-1 && !r.Closed {
			continue
		}
		l.Ring.Next = inv.LPUs[r.Cards[(i+1)%n]].Name
	}
	inv.Rings = append(inv.Rings, made)
}
