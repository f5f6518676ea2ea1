package owner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
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
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Owner"
	Owner      Owner  `json:"owner"`
	// Since is when the owner was changed, in RFC 3339, and Moment the same by the clock that nobody can set. Both are zero if there is
	// no file.
	Since  time.Time   `json:"since,omitzero"`
	Moment host.Moment `json:"moment,omitzero"`
	By     string      `json:"by,omitempty"` // who changed it: user name and id, or a program
	// AtStart: a program wrote itself in when it started (--owner), and nobody used the command.
	AtStart bool `json:"atStart,omitempty"`
}

const (
	recordKind  = "Owner"
	recordLimit = 64 << 10 // bytes; a record has about 300
	badSuffix   = ".bad"
)

// File is the file that says who the owner is, and the lock beside it under which it is changed and LPUs are handed out.
type File struct {
	Dir string // the state directory of lpuctl, as a path of this machine
	// Sockets is the kubelet's directory with the sockets of device plugins, as a path of this
	// machine: a plugin of a release before shows nothing else. "": it is not looked at.
	Sockets string
}

// Path is the path of the file.
func (f File) Path() string { return filepath.Join(f.Dir, "owner.json") }

// Read returns what the file says. If there is none the owner is the plugin, as it was before there was a file. With an error nobody
// is to hand out LPUs: the file is not understood, it may be of a newer lpuctl, or somebody without rights may have written it. Keys
// that are not known do not matter.
func (f File) Read() (Record, error) {
	data, err := wholefile.ReadTrusted(f.Path(), recordLimit)
	if host.IsAbsent(err) {
		return Record{APIVersion: discovery.APIVersion, Kind: recordKind, Owner: Plugin}, nil
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && (r.APIVersion != discovery.APIVersion || r.Kind != recordKind) {
		err = fmt.Errorf("apiVersion %q, kind %q; expected %s, %s", r.APIVersion, r.Kind, discovery.APIVersion, recordKind)
	}
	if err == nil {
		_, err = Parse(string(r.Owner))
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", f.Path(), host.Reason(err))
	}
	return r, nil
}

// Set writes an owner, by whom and whether at a start, under the lock, so that nobody is handing out LPUs in that moment. It returns what
// the file said before, and writes nothing if that is the same owner. A file that cannot be used is kept beside as owner.json.bad; then
// before has no Owner.
func (f File) Set(ctx context.Context, to Owner, by string, atStart bool) (before Record, err error) {
	if before, err = f.Read(); err == nil && before.Owner == to && !before.Since.IsZero() {
		return before, nil // also where nothing can be written
	}
	lock, err := filelock.Hold(ctx, f.Path())
	if err != nil {
		return Record{}, err
	}
	defer lock.Close()
	before, err = f.Read()
	switch {
	case err != nil:
		if err := f.putAside(); err != nil {
			return Record{}, err
		}
	case before.Owner == to && !before.Since.IsZero():
		return before, nil
	}
	now := time.Now().UTC().Truncate(time.Second)
	return before, f.write(Record{discovery.APIVersion, recordKind, to, now, host.Now(), by, atStart})
}

// putAside gives the file a second name. It keeps the first until it is replaced: no file would say that the plugin is the owner.
func (f File) putAside() error {
	if err := wholefile.Refuse(f.Path()); err != nil {
		return err
	}
	if err := os.Remove(f.Path() + badSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(f.Path(), f.Path()+badSuffix)
}

func (f File) write(r Record) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	wholefile.ClearLeftovers(f.Path())
	return wholefile.Replace(f.Path(), text.Bytes())
}
