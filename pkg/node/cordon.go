package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// FollowCordons calls changed if there is a file with cordons, and soon after it changes, until ctx ends: an LPU that is cordoned must
// not be handed out until the next scan. Without inotify it looks once a second.
func (m Memory) FollowCordons(ctx context.Context, changed func()) {
	path := m.Cordons().Path
	if path == "" {
		return
	}
	var events <-chan fsnotify.Event // nil without inotify
	var missed <-chan error          // received too, because no events are told until they are
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		events, missed = watcher.Events, watcher.Errors
	}
	tick := time.Tick(time.Second)
	for last := ""; ctx.Err() == nil; {
		if watcher != nil {
			_ = watcher.Add(filepath.Dir(path)) // again each time, in case the directory was made anew
		}
		if state := host.State(path); state != last {
			last = state
			changed()
		}
		select {
		case <-events:
		case <-missed: //nolint:errcheck // whatever was missed, the file is looked at now
		case <-tick:
		case <-ctx.Done():
		}
	}
}
