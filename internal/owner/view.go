package owner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// View is what a gate knew at one moment. It does not change.
type View struct {
	Record Record // zero if Err is set
	Err    error  // the file cannot be used: no program is to hand out LPUs
	Mine   bool   // the owner is the one whose gate it is

	me        Owner
	untold    error                  // why it is not known what the other side has; nil if it is
	unsettled time.Duration          // how long the other side's answers do not count yet
	held      map[pci.Address]string // by whom on the other side
	twice     map[pci.Address]finding.Finding
	leased    map[pci.Address]string // by which lease or reservation
	unread    error                  // why it is not known what users have leased; nil if it is
}

// Twice are the LPUs that two pods have, by their addresses.
func (v *View) Twice() []pci.Address {
	return slices.SortedFunc(maps.Keys(v.twice), pci.Address.Compare)
}

// Why says why an LPU is not to be offered; "" if it may be.
func (v *View) Why(a pci.Address) string {
	if f := v.Finding(a); f != nil {
		return f.Message
	}
	return ""
}

// Finding is [View.Why] as a finding; nil if the LPU may be offered.
func (v *View) Finding(a pci.Address) *finding.Finding {
	if f, twice := v.twice[a]; twice {
		return &f
	}
	if f := v.All(); f != nil {
		return f
	}
	if by, held := v.held[a]; held {
		return because(finding.HeldByOther, fmt.Sprintf("%s has it, from %s", by, v.me.Other().Program()), "")
	}
	if by, leased := v.leased[a]; leased {
		return because(finding.HeldByOther, by+" has it", "wait until it is given back; who has it: lpuctl list; "+
			"if the arbiter was stopped, start it, and it writes down which leases have ended: "+
			"sudo systemctl start lpuctl-lease.socket lpuctl-lease.service")
	}
	return nil
}

// Leased reports whether a user has leased or reserved an LPU, or may have.
func (v *View) Leased(a pci.Address) bool { return v.unread != nil || v.leased[a] != "" }

// All says why no LPU of the node is to be offered; nil if only some are not, or none.
func (v *View) All() *finding.Finding {
	switch {
	case v.Err != nil:
		return because(finding.OwnerUnknown, "it is not known who hands out the LPUs of this node: "+v.Err.Error(), "")
	case !v.Mine:
		id := map[Owner]finding.ID{Plugin: finding.OwnerPlugin, DRA: finding.OwnerDRA}[v.Record.Owner]
		return because(id, "the LPUs of this node are handed out by "+v.Record.Owner.Program(), "")
	case v.untold != nil:
		return unknown("which LPUs pods have from "+v.me.Other().Program(), v.untold)
	case v.unread != nil:
		return unknown("which LPUs users have leased", v.unread)
	case v.unsettled > 0:
		return because(finding.OwnerUnsettled, "the node changed over a moment ago, and it may not be known yet what "+
			v.me.Other().Program()+" handed out last", "")
	}
	return nil
}

// because is a finding without a subject. Without a remedy it is that of the id.
func because(id finding.ID, message, remedy string) *finding.Finding {
	f := finding.New(id, "", message, remedy)
	return &f
}

// unknown says that something is not known which must be before an LPU is offered.
func unknown(what string, err error) *finding.Finding {
	return because(finding.OwnerUnsettled, fmt.Sprintf("it is not known %s: %v", what, err), finding.RemedyOf(err))
}

// same reports whether two views say the same.
func (v *View) same(w *View) bool {
	return w != nil && v.Record == w.Record && v.Mine == w.Mine && text(v.Err) == text(w.Err) && text(v.untold) == text(w.untold) &&
		text(v.unread) == text(w.unread) &&
		(v.unsettled > 0) == (w.unsettled > 0) && maps.Equal(v.held, w.held) && maps.Equal(v.twice, w.twice) && maps.Equal(v.leased, w.leased)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
