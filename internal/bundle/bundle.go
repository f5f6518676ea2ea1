// Package bundle packs what lpuctl reads of a node into one file, without secrets and
// names, and unpacks it again so that other machines can look at the same node.
//
// A bundle is a tar archive, compressed by gzip. Its first entry, bundle.json, is the
// [Index]. Below root/ is a tree that [host.Root] reads; below answers/ is what programs
// answered when it was made, and below journal/ what units have written.
package bundle

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// Format is the version of the format. A reader refuses a higher one.
const Format = 1

// Limits of what a bundle has. A node with 512 LPUs and 4096 other functions stays below.
const (
	PackedMax  = 1 << 20  // bytes of the file
	TotalMax   = 48 << 20 // bytes of all entries together
	EntryMax   = 8 << 20  // bytes of one entry
	EntriesMax = 200_000
	nameMax    = 1024 // bytes of a name
	depthMax   = 64   // elements of a name, and links that are followed
)

// Names of entries.
const (
	indexName  = "bundle.json"
	rootDir    = "root"
	answersDir = "answers"
	journalDir = "journal"
)

// Answers that a bundle has by these names.
const (
	Doctor   = "doctor.json"   // the diagnosis
	Runtimes = "runtimes.json" // what container runtimes said
	Users    = "users.json"    // which processes use LPUs
	Usage    = "usage.json"    // what the arbiter of leases said of the use until then
	Pods     = "pods.json"     // what the kubelet said
)

const kind = "Bundle"

// Index is what a bundle says of itself.
type Index struct {
	statefile.Header
	Format    int           `json:"format"`
	Made      time.Time     `json:"made"` // by the clock of the node
	Boot      string        `json:"boot"`
	SinceBoot time.Duration `json:"sinceBoot"` // in nanoseconds
	Program   string        `json:"program"`   // the release of lpuctl
	Kernel    string        `json:"kernel,omitempty"`
	UID       int           `json:"uid"` // of who made it: what it may not read is missing
	// Files is what the tree cannot say of its files, by their paths below the root.
	Files    map[string]Status `json:"files"`
	LeftOut  []Note            `json:"leftOut"`
	Replaced []Note            `json:"replaced"`
}

// Status is what a file was on the node.
type Status struct {
	Mode     uint32 `json:"mode"` // st_mode
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	Major    uint32 `json:"major,omitempty"`
	Minor    uint32 `json:"minor,omitempty"`
	Modified int64  `json:"modified,omitempty"` // nanoseconds since 1970
	Changed  int64  `json:"changed,omitempty"`  // st_ctim, likewise
	Errno    int    `json:"errno,omitempty"`    // of a read
	Size     int64  `json:"size,omitempty"`     // of a file that is too large to be here
}

// Note says of how much something holds.
type Note struct {
	What  string `json:"what"`
	Why   string `json:"why,omitempty"`
	Count int    `json:"count"`
}

// Entry is a directory, a link, or a regular file.
type Entry struct {
	Dir  bool
	Link string // the text of a link
	Data []byte
}

// Bundle is what is packed.
type Bundle struct {
	Index   Index
	Entries map[string]*Entry // by their names in the archive, without the index
}

// Names returns the names of all entries, sorted, so that a directory stands before what
// is in it.
func (b *Bundle) Names() []string {
	names := make([]string, 0, len(b.Entries))
	for name := range b.Entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Answer reads an answer. The result is false if the bundle has none.
func (b *Bundle) Answer(name string, into any) (bool, error) {
	e := b.Entries[path.Join(answersDir, name)]
	if e == nil {
		return false, nil
	}
	if err := json.Unmarshal(e.Data, into); err != nil {
		return true, fmt.Errorf("%s of the bundle: %w", name, err)
	}
	return true, nil
}

// File returns a file of the node's tree by its path there; nil if the bundle has none.
func (b *Bundle) File(p string) []byte {
	if e := b.Entries[rootDir+p]; e != nil && !e.Dir && e.Link == "" {
		return e.Data
	}
	return nil
}

// Moment is when the bundle was made.
func (b *Bundle) Moment() host.Moment {
	return host.Moment{Boot: b.Index.Boot, SinceBoot: b.Index.SinceBoot}
}

// original is what a file was on the node.
func (s Status) original() host.Original {
	o := host.Original{
		Mode: s.Mode, UID: s.UID, GID: s.GID, Device: unix.Mkdev(s.Major, s.Minor), Changed: time.Unix(0, s.Changed),
	}
	if s.Errno != 0 {
		o.Err = unix.Errno(s.Errno)
	}
	return o
}

// below reports whether a path is a directory or in it.
func below(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
