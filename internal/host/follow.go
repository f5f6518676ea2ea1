package host

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Follow calls changed if one of the files is there, and soon after one changes, comes or
// goes, until ctx ends. Without inotify it looks once a second. A path that is "" is left
// out.
func Follow(ctx context.Context, changed func(), paths ...string) {
	var events <-chan fsnotify.Event // nil without inotify
	// missed is received too, because the watcher sends no events until its errors are.
	var missed <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		events, missed = watcher.Events, watcher.Errors
	}
	for last := ""; ctx.Err() == nil; {
		for _, path := range paths {
			if watcher != nil && path != "" {
				_ = watcher.Add(filepath.Dir(path)) // again each time, in case the directory was made again
			}
		}
		if state := states(paths); state != last {
			last = state
			changed()
		}
		select {
		case <-events:
		case <-missed: //nolint:errcheck // whatever was missed, the files are looked at now
		case <-time.After(UntilBeat(time.Second, SinceBoot())):
		case <-ctx.Done():
		}
	}
}

// states is [State] of all files together.
func states(paths []string) string {
	var all strings.Builder
	for _, path := range paths {
		all.WriteString(State(path))
	}
	return all.String()
}
