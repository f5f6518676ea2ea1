package runtimes

import (
	"context"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Recorded is what [Check] and [Orders] found on a machine of which a copy is looked at: no
// daemon can be asked there.
type Recorded struct {
	Asked []Runtime `json:"asked"` // as [Check] returns them
	Files []Runtime `json:"files"` // by their files only, as [Orders] takes them
}

// Record asks the runtimes of the machine under root twice: with and without the daemons.
func Record(ctx context.Context, root string, o Options) Recorded {
	r := Recorded{Asked: Check(ctx, root, o)}
	r.Files = Check(ctx, root, Options{filesOnly: true})
	return r
}

//nolint:gochecknoglobals // a process looks at one machine
var recordings host.Answers[Recorded]

// Replay lets [Check] and [Orders] answer what was recorded of the machine under root,
// until the returned function is called.
func Replay(root string, r Recorded) (end func()) { return recordings.Replay(host.Root(root), r) }

// recordedOf returns what was recorded, unless files or sockets are asked for that others
// name.
func recordedOf(root string, o Options) ([]Runtime, bool) {
	r, ok := recordings.Of(host.Root(root))
	if !ok || o.ContainerdAddress != "" || o.ContainerdConfig != "" {
		return nil, false
	}
	if o.filesOnly {
		return slices.Clone(r.Files), true
	}
	return slices.Clone(r.Asked), true
}
