package launch

import (
	"context"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// hear listens at the connection of a lease until ctx ends. If root ends the lease, it says
// so. The arbiter ends nothing itself: who holds the lease has to. That its time is over,
// run sees by itself.
func (h *heldLease) hear(ctx context.Context, ended chan<- string) {
	for {
		over, err := h.client.Over(ctx)
		if err != nil {
			return
		}
		if over.At != 0 {
			ended <- "root ended the lease at " + host.WallClock(over.At).Format(time.RFC3339)
			return
		}
	}
}

// sayEnded says why a command is ended, also to who has asked for quiet.
func (s *Site) sayEnded(why string) {
	s.Report(finding.List{finding.New(finding.LeaseEnded, "run", why, "ask root why, and start the command again")})
}

// endText says when a lease ends: at a time since boot or, if that is 0, with the command.
func endText(until time.Duration) string {
	if until == 0 {
		return "the command ends"
	}
	return host.WallClock(until).Format(time.RFC3339)
}
