package node

import (
	"context"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// FollowCordons calls changed if there is a file with cordons, and soon after it changes,
// until ctx ends: an LPU that is cordoned must not be handed out until the next scan.
// Without inotify it looks once a second.
func (m Memory) FollowCordons(ctx context.Context, changed func()) {
	if path := m.Cordons().Path; path != "" {
		host.Follow(ctx, changed, path)
	}
}
