package lease

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Seek is what the arbiter asks a look for besides what it always shows.
type Seek struct {
	Containers []string     // ids: in which groups of theirs are processes?
	Users      map[int]bool // by their own uids: which of their processes may use LPUs unseen?
}

// Looker looks at the machine under Root. It is not safe for concurrent use.
type Looker struct {
	Root   host.Root
	People *person.People // of whom processes are
	hidden discovery.Hidden
}

// Look is one look. The inventory is a new one, with the cordons of the LPUs, and gets
// their users. In a shortage ([host.IsShortage]) it fails: a container that cannot be seen
// is not taken for ended.
func (k *Looker) Look(ctx context.Context, inv *discovery.Inventory, seek Seek) (View, error) {
	if err := host.Spare(); err != nil {
		return View{}, err
	}
	root := string(k.Root)
	discovery.FindUsers(ctx, root, inv)
	v := View{Inventory: inv, Sockets: discovery.Sockets(root, inv), Containers: map[string][]Group{}}
	t, err := k.Root.Open()
	if err != nil {
		return v, err
	}
	defer t.Close()
	if len(seek.Containers) > 0 {
		v.Containers = groups(t, seek.Containers)
	}
	var failed error
	if len(seek.Users) > 0 {
		v.Unclear, failed = k.hidden.Find(ctx, root, inv, k.whose(ctx, seek.Users))
	}
	return v, cmp.Or(ctx.Err(), t.Shortage(), failed)
}

// askTime is how long a look waits for the system's resolver, with all that it asks. Those
// who want LPUs wait for the look.
const askTime = time.Second

// whose returns a func that says whose, of some users, a uid may be: where that cannot be
// found out, all of them.
func (k *Looker) whose(ctx context.Context, users map[int]bool) func(uid int) []int {
	known, left := map[int][]int{}, askTime
	return func(uid int) []int {
		of, found := known[uid]
		if found {
			return of
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		of, err := k.People.Users(limited, uid)
		left -= time.Since(began)
		if err != nil {
			of = slices.Collect(maps.Keys(users))
		}
		known[uid] = slices.DeleteFunc(of, func(user int) bool { return !users[user] })
		return known[uid]
	}
}
