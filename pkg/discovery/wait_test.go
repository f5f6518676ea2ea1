package discovery

import (
	"context"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestWaitAfterAnOverflow: where inotify missed changes, the next scan does not wait for the interval.
func TestWaitAfterAnOverflow(t *testing.T) {
	missed := make(chan error, 1)
	missed <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if !new(Watcher).wait(ctx, nil, missed, nil, time.Hour) || len(missed) != 0 {
		t.Error("the error is not received")
	}
}
