package discovery

import (
	"context"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestWaitAfterAnOverflow: where inotify missed changes, the next scan does not wait for the interval.
func TestWaitAfterAnOverflow(t *testing.T) {
	missed := make(chan error, 1)
	missed <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if !NewWatcher("/nowhere", Options{}, host.SinceBoot).wait(ctx, nil, missed, nil, time.Hour) || len(missed) != 0 {
		t.Error("the error is not received")
	}
}

// TestAGlanceThatFails: cards at which a glance could not look are read, and not taken for unchanged.
func TestAGlanceThatFails(t *testing.T) {
	w := NewWatcher(unpack(t, u55c), Options{Models: captureModels()}, host.SinceBoot)
	if _, err := w.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.root += ".away"
	if seen, err := w.glance(t.Context()); seen != "" || err != nil || !w.options.cards.wanted() {
		t.Errorf("%q, %v, the cards are to be read: %t", seen, err, w.options.cards.wanted())
	}
}
