package owner

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// Owner is the program that hands out the LPUs of a node to pods.
type Owner string

// The owners.
const (
	Plugin Owner = "plugin" // the device plugin, lpuctl serve; also where no file says anything
	DRA    Owner = "dra"    // the DRA driver, lpuctl-dra serve
)

// Parse returns the owner that a word names.
func Parse(word string) (Owner, error) {
	if o := Owner(word); o == Plugin || o == DRA {
		return o, nil
	}
	return "", fmt.Errorf("owner %q: expected %s or %s", word, Plugin, DRA)
}

// Other is the one that is not o.
func (o Owner) Other() Owner {
	if o == DRA {
		return Plugin
	}
	return DRA
}

// Program names the owner to people.
func (o Owner) Program() string {
	if o == DRA {
		return "the DRA driver (lpuctl-dra)"
	}
	return "the device plugin (lpuctl serve)"
}

// Record is what the file says.
type Record struct {
	statefile.Header
	Owner Owner `json:"owner"`
	// Since is when the owner was changed, in RFC 3339, and Moment the same by the clock
	// that no user can set. Both are zero if there is no file.
	Since  time.Time   `json:"since,omitzero"`
	Moment host.Moment `json:"moment,omitzero"`
	By     string      `json:"by,omitempty"` // who changed it: user name and id, or a program
	// AtStart: a program wrote itself in when it started (--owner), and no user used the
	// command.
	AtStart bool `json:"atStart,omitempty"`
}

// File is the file that says who the owner is, and the lock beside it under which it is
// changed and LPUs are handed out.
type File struct {
	Dir string // the state directory of lpuctl, as a path of this machine
	// Sockets is the kubelet's directory with the sockets of device plugins, as a path of
	// this machine: a plugin of a release before shows nothing else. "": it is not looked
	// at.
	Sockets string
}

// Path is the path of the file.
func (f File) Path() string { return filepath.Join(f.Dir, "owner.json") }

// state is the file itself. Keys that it does not know do not matter.
func (f File) state() statefile.File[Record] {
	return statefile.File[Record]{
		Path: f.Path(), Kind: "Owner", Trusted: true,
		Limit: 64 << 10, // a record has about 300 bytes
		Check: func(r *Record) error {
			_, err := Parse(string(r.Owner))
			return err
		},
	}
}

// Read returns what the file says. If there is none the owner is the plugin, as it was
// before there was a file. With an error no program is to hand out LPUs: the file is not
// understood, it may be of a newer lpuctl, or a user without rights may have written it.
func (f File) Read() (Record, error) {
	return said(f.state().Read())
}

// said is what the file says, as it was read.
func said(r *Record, err error) (Record, error) {
	if err != nil {
		return Record{}, err
	}
	return *cmp.Or(r, &Record{Owner: Plugin}), nil
}

// Set writes an owner, by whom and whether at a start, under the lock, so that no program
// is handing out LPUs in that moment. It returns what the file said before, and writes
// nothing if that is the same owner. A file that cannot be used is kept beside as
// owner.json.bad; then before has no Owner.
func (f File) Set(ctx context.Context, to Owner, by string, atStart bool) (before Record, err error) {
	isSet := func(r Record) bool { return r.Owner == to && !r.Since.IsZero() }
	if before, err = f.Read(); err == nil && isSet(before) {
		return before, nil // also where nothing can be written
	}
	err = f.state().Change(ctx, func(r *Record, unread error) (*Record, error) {
		if before, _ = said(r, unread); isSet(before) {
			return nil, nil
		}
		now := time.Now().UTC().Truncate(time.Second)
		return &Record{Owner: to, Since: now, Moment: host.Now(), By: by, AtStart: atStart}, nil
	})
	return before, err
}
