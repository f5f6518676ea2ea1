package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Holder is who has an LPU.
type Holder struct {
	// Kind is by what it has the LPU: lease, pod, container, process, reservation, or
	// keptBack.
	Kind string `json:"kind"`
	// Name is the user of a lease or reservation, the pod, the container, or the process.
	Name string `json:"name"`
	ID   string `json:"id,omitempty"` // of a lease or reservation
	// Since is when the lease or reservation began, or the first process with an open node;
	// zero: not known.
	Since time.Time `json:"since,omitzero"`
	// Until is when the lease or reservation is over; zero: never, or it is neither.
	Until time.Time `json:"until,omitzero"`
	// Processes is how many processes have a node open; nil: not known.
	Processes *int `json:"processes,omitempty"`
}

// shownDigits is how many digits of a container's id runtimes show.
const shownDigits = 12

// holderOf returns who has an LPU: by a lease, else the pod, else who has its node open,
// else for whom it is kept; nil if no one has it. clock returns the time of day of a time
// since boot.
func holderOf(l *discovery.LPU, pod string, clock func(time.Duration) time.Time) *Holder {
	h := &Holder{}
	first := firstUser(l.Users)
	if l.Users != nil {
		n := len(l.Users)
		h.Processes = &n
	}
	if first != nil && first.Started > 0 {
		h.Since = clock(first.Started)
	}
	switch {
	case l.Leased != nil:
		h.mark("lease", l.Leased)
	case pod != "":
		h.Kind, h.Name = "pod", strings.TrimPrefix(pod, "pod ")
	case first != nil && first.Pod != "":
		h.Kind, h.Name = "pod", first.Pod
	case first != nil && first.Container != "":
		h.Kind = "container"
		h.Name = strings.TrimSpace(first.Runtime + " " + first.Container[:min(shownDigits, len(first.Container))])
	case first != nil:
		h.Kind, h.Name = "process", fmt.Sprintf("%s(%d)", first.Command, first.PID)
	case l.Reserved != nil:
		h.mark("reservation", l.Reserved)
	case l.KeptBack != "":
		h.Kind, h.Name = "keptBack", l.KeptBack
	default:
		return nil
	}
	return h
}

// mark takes what the arbiter says.
func (h *Holder) mark(kind string, by *discovery.Holder) {
	h.Kind, h.Name, h.ID, h.Since, h.Until = kind, by.String(), by.ID, by.Since, by.Until
}

// firstUser returns the process that began first, and of several the one with the lowest
// number; nil if there is none.
func firstUser(users []discovery.User) *discovery.User {
	if len(users) == 0 {
		return nil
	}
	first := slices.MinFunc(users, func(a, b discovery.User) int {
		return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.PID, b.PID))
	})
	return &first
}

// text is who has an LPU, as the screen has it; "" if no one is known.
func (l *LPU) holder() string {
	h, hidden := l.Holder, ""
	if l.Hidden {
		hidden = "?"
	}
	if h == nil {
		return hidden
	}
	text := h.Name
	switch h.Kind {
	case "lease":
		text = h.ID + " " + h.Name
	case "reservation":
		text = h.ID + " for " + h.Name
	case "keptBack":
		text = "kept back"
	}
	if h.Kind != "lease" && hidden != "" {
		text += " " + hidden
	}
	return text
}
