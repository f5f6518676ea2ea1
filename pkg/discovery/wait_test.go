package discovery

import (
	"context"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// TestWaitAfterAnOverflow: where inotify missed changes, the next scan does not wait for the interval.
func TestWaitAfterAnOverflow(t *testing.T) {
	missed := make(chan error, 1)
	missed <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if !NewWatcher("/nowhere", Options{}, host.SinceBoot).wait(ctx, nil, missed, nil, time.Hour) || len(missed) != 0 {
		t.Error("the error is not received")
	}
}
