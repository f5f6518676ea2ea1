package watch

import (
	"context"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestWaitAfterAnOverflow: where inotify missed changes, the next scan does not wait for the interval.
func TestWaitAfterAnOverflow(t *testing.T) {
	missed := make(chan error, 1)
	missed <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if !New("/nowhere", Options{}, host.SinceBoot).wait(ctx, nil, missed, nil, time.Hour) || len(missed) != 0 {
		t.Error("the error is not received")
	}
}

// TestAGlanceThatFails: cards at which a glance could not look are read, and not taken for unchanged.
func TestAGlanceThatFails(t *testing.T) {
	w := New(plant.Capture(t, u55c), Options{Scan: discovery.Options{Models: captureModels(t)}}, host.SinceBoot)
	if _, err := w.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.root += ".away"
	if seen, err := w.glance(t.Context()); seen != "" || err != nil || !w.cards.wanted() {
		t.Errorf("%q, %v, the cards are to be read: %t", seen, err, w.cards.wanted())
	}
}
