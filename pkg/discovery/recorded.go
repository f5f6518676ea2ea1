package discovery

import (
	"context"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// RecordedUsers is what [FindUsers] found on a machine of which a copy is looked at: the
// processes there are not in the copy.
type RecordedUsers struct {
	Users  map[pci.Address][]User `json:"users"`
	Hidden []string               `json:"hidden,omitempty"` // what was not seen, and why
}

// RecordUsers finds who uses the LPUs of an inventory.
func RecordUsers(ctx context.Context, root string, inv *Inventory) RecordedUsers {
	FindUsers(ctx, root, inv)
	r := RecordedUsers{Users: map[pci.Address][]User{}}
	for i := range inv.LPUs {
		if l := &inv.LPUs[i]; len(l.Users) > 0 {
			r.Users[l.Address] = l.Users
		}
	}
	for _, f := range inv.Problems {
		if f.ID == finding.UsersHidden && f.Subject == processes {
			r.Hidden = append(r.Hidden, strings.TrimPrefix(f.Message, cannotSee))
		}
	}
	return r
}

//nolint:gochecknoglobals // a process looks at one machine
var recordedUsers host.Answers[RecordedUsers]

// ReplayUsers lets [FindUsers] find what was recorded of the machine under root, until the
// returned function is called.
func ReplayUsers(root string, r RecordedUsers) (end func()) {
	return recordedUsers.Replay(host.Root(root), r)
}

// replayUsers is [FindUsers] on a recorded machine.
func (inv *Inventory) replayUsers(r RecordedUsers) {
	for i := range inv.LPUs {
		for _, u := range r.Users[inv.LPUs[i].Address] {
			u.UID = -1 // it is not recorded
			inv.LPUs[i].Users = append(inv.LPUs[i].Users, u)
		}
	}
	for _, what := range r.Hidden {
		inv.hideUsers(cannotSee + what)
	}
}
