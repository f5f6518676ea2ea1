package pods

import (
	"context"
	"errors"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Recorded is what [Node.Holders] returned on a machine of which a copy is looked at: its
// kubelet cannot be asked there.
type Recorded struct {
	Holders map[pci.Address]string `json:"holders"`
	Unknown string                 `json:"unknown,omitempty"` // why it is not known of some
}

// Record asks which pods have which LPUs.
func (n *Node) Record(ctx context.Context) Recorded {
	holders, err := n.Holders(ctx)
	r := Recorded{Holders: holders}
	if err != nil {
		r.Unknown = err.Error()
	}
	return r
}

//nolint:gochecknoglobals // a process looks at one machine
var recordings host.Answers[Recorded]

// Replay lets [Node.Holders] answer what was recorded of the machine under root, until the
// returned function is called.
func Replay(root host.Root, r Recorded) (end func()) { return recordings.Replay(root, r) }

// holders is the answer of [Node.Holders].
func (r Recorded) holders() (map[pci.Address]string, error) {
	if r.Unknown != "" {
		return r.Holders, errors.New(r.Unknown)
	}
	return r.Holders, nil
}
