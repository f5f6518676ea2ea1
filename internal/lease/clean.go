package lease

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Kept is an LPU that is kept back after a lease. Times are since boot (CLOCK_BOOTTIME),
// in nanoseconds.
type Kept struct {
	LPU
	Peer                // who had the lease
	Since time.Duration `json:"since"` // when the lease ended, or the hook after it
	// Hook: no user gets it before the hook has succeeded.
	Hook   bool   `json:"hook,omitempty"`
	Failed string `json:"failed,omitempty"` // how the hook has failed last; "": it has still to run
	// Unclear says which process may still use it, so that no other user gets it.
	Unclear string `json:"unclear,omitempty"`
}

// Reason says why it is kept back.
func (k *Kept) Reason() string {
	switch {
	case k.Failed != "":
		return "leases.hook has failed on it: " + k.Failed
	case k.Unclear != "":
		return "it may still be in use: " + k.Unclear
	}
	return "leases.hook has to run on it first"
}

// Finding says that it is kept back for another reason than that the hook has still to run;
// nil: it is not.
func (k *Kept) Finding() *finding.Finding {
	var f finding.Finding
	switch {
	case k.Failed != "":
		f = finding.New(finding.LeaseHookFailed, k.Name, k.Reason(), hookRemedy(k.Name))
	case k.Unclear != "":
		f = finding.New(finding.LeaseUnclear, k.Name, k.Reason(), "end that process")
	default:
		return nil
	}
	return &f
}

func hookRemedy(lpu string) string {
	return "see in the arbiter's log what it says (journalctl -u lpuctl-lease.service), and mend that; then have it run again, as root: " +
		"lpuctl lease hooks --retry " + lpu
}

// check finds what no arbiter writes.
func (k *Kept) check() error {
	for _, text := range []string{k.Failed, k.Unclear} {
		if text != "" && CheckReason(text) != nil {
			return fmt.Errorf("%s is kept back for %.40q", k.Address, text)
		}
	}
	if k.UID < 0 || k.Since < 0 || k.Failed != "" && !k.Hook {
		return fmt.Errorf("%s: half of an LPU that is kept back", k.Address)
	}
	return nil
}

// end is the end of the latest lease of an LPU, or of the hook after that.
type end struct {
	Kept
	clear   bool // a look since then has shown no process of the user that may use it yet
	running bool // the hook runs
	// asked are who has asked that the hook runs again.
	asked []Conn
}

// kept are the LPUs that are kept back, in the order of their addresses.
func (b *Book) kept() (kept []Kept) {
	for _, a := range slices.SortedFunc(maps.Keys(b.ended), pci.Address.Compare) {
		k := b.ended[a].Kept
		if u := b.unclear(k.UID); u != nil && !b.ended[a].clear && b.leased()[a] == nil {
			k.Unclear = oneLine(u.String())
		}
		if k.Hook || k.Unclear != "" {
			kept = append(kept, k)
		}
	}
	return kept
}

// noteKept has it written down which LPUs are kept back, if that is something new.
func (b *Book) noteKept() {
	if kept := b.kept(); !slices.Equal(kept, b.noted) {
		b.noted, b.changed.Leases = kept, true
	}
}

// restoreKept takes up which LPUs are kept back. Where there is no hook none has to run.
func (b *Book) restoreKept(kept []Kept) {
	for _, k := range kept {
		if k.Hook = k.Hook && b.hooks; !k.Hook {
			k.Failed = ""
		}
		k.Unclear = ""
		b.ended[k.Address] = &end{Kept: k}
	}
}

// whyKept says why an LPU is kept from a user after a lease; "": it is not.
func (b *Book) whyKept(uid int, a pci.Address) string {
	k := Kept{}
	if e := b.ended[a]; e != nil {
		k = e.Kept
	}
	if u := b.keptBack(uid, a); u != nil {
		k.Unclear = u.String()
	}
	if !k.Hook && k.Unclear == "" {
		return ""
	}
	return "kept back: " + k.Reason()
}

// failed reports whether the hook has failed on an LPU.
func (b *Book) failed(a pci.Address) bool {
	e := b.ended[a]
	return e != nil && e.Failed != ""
}

// cleans reports whether an LPU is kept back that a look may show to be clean, or whose
// hook runs, or no look has shown yet whether it is.
func (b *Book) cleans() bool {
	for _, e := range b.ended {
		if e.Hook && e.Failed == "" || !e.clear && (e.Since >= b.Began || b.unclear(e.UID) != nil) {
			return true
		}
	}
	return false
}

// due are the LPUs whose hook is to run now: no process has them, as the latest look shows.
func (b *Book) due() (due []*end) {
	for i := range b.Inventory.LPUs {
		e := b.ended[b.lpu(i).Address]
		if e != nil && e.Hook && e.Failed == "" && !e.running && b.busy(b.lpu(i), e) == "" {
			due = append(due, e)
		}
	}
	return due
}

// busy says why the hook cannot run on an LPU at this moment; "": it can.
func (b *Book) busy(l *discovery.LPU, e *end) string {
	u := b.unclear(e.UID)
	switch {
	case l == nil || l.Absent:
		return "it is not in this machine now"
	case len(l.Users) > 0:
		return "it is in use by " + l.Users[0].String()
	case u != nil:
		return "it may still be in use: " + u.String()
	case e.Since >= b.Began:
		return "its lease has ended just now"
	case e.running:
		return "the hook runs on it"
	}
	return ""
}

// at is the LPU at an address, as the latest look shows; nil if there is none.
func (b *Book) at(address pci.Address) *discovery.LPU {
	i := slices.IndexFunc(b.Inventory.LPUs, func(l discovery.LPU) bool { return l.Address == address })
	if i < 0 {
		return nil
	}
	return b.lpu(i)
}

// Retry has the hook run again on an LPU, if one asks who may. It is answered when the hook
// has ended.
func (b *Book) Retry(conn Conn, may bool, address pci.Address) {
	b.state++
	l, e := b.at(address), b.ended[address]
	switch {
	case !may:
		b.refuse(conn, finding.LeaseRequest, "only root has leases.hook run again", "ask root: sudo lpuctl lease hooks --retry "+address.String())
	case e == nil || !e.Hook:
		b.refuse(conn, finding.LeaseUnknown, address.String()+" is not kept back by leases.hook", "see what is: lpuctl lease hooks")
	case b.busy(l, e) != "":
		b.refuse(conn, finding.LeaseNoneFree, address.String()+": "+b.busy(l, e), "wait until it is not, and ask again")
	default:
		e.Failed, e.asked = "", append(e.asked, conn)
		b.line.era++
		b.changed.Leases = true
	}
}

// Cleaned says how the hook on an LPU has ended; why is "" if it has succeeded. Then the
// LPU is free when a later look shows that no process has it.
func (b *Book) Cleaned(now time.Duration, e *end, why string) {
	b.state++
	b.line.era++
	b.changed.Leases = true
	answer := Answer{Done: &struct{}{}}
	if e.Failed = oneLine(why); e.Failed == "" {
		e.Hook, e.Since, e.clear = false, now, true
	} else {
		answer = Answer{Refused: &Refusal{finding.LeaseHookFailed, e.Name + ": " + e.Reason(), hookRemedy(e.Name)}}
	}
	for _, conn := range e.asked {
		b.send(conn, answer)
	}
	e.asked = nil
	b.serve(now)
}
