package stall

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"
)

// TestABusyMachineIsNoHang: a read that waits for a processor has its deadline often, and one that
// sleeps in the kernel once.
func TestABusyMachineIsNoHang(t *testing.T) {
	const deadline = time.Second
	always, never := func() bool { return true }, func() bool { return false }
	looked := 0
	sometimes := func() bool { looked++; return looked%looksAsleep != 0 }
	for name, c := range map[string]struct {
		asleep      func() bool
		done, after time.Duration // done 0: never
	}{
		"busy":        {never, 0, 30 * deadline},
		"busy a time": {never, 5 * deadline / 2, 5 * deadline / 2},
		"hangs":       {always, 0, deadline},
		"hangs long":  {always, 5 * deadline / 2, deadline},
		"slow":        {always, deadline / 2, deadline / 2},
		"sometimes":   {sometimes, 5 * deadline / 2, 5 * deadline / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				if c.done > 0 {
					time.AfterFunc(c.done, func() { close(ended) })
				}
				began := time.Now()
				in := EndsWithin(t.Context(), deadline, ended, c.asleep)
				if got := time.Since(began); got != c.after || in != (c.done == c.after) {
					t.Errorf("it was waited for %v, want %v; ended: %t", got, c.after, in)
				}
			})
		})
	}
}

// TestWithin gives up on a read that hangs. No file of a test's own can hang: test/e2e has one that does.
func TestWithin(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	hangs, answers := func() (int, error) { <-hang; return 1, nil }, func() (int, error) { return 1, fs.ErrNotExist }
	if v, err := Within(context.Background(), &Reads{}, "", 5*time.Millisecond, hangs); !errors.Is(err, ErrStalled) || v != 0 {
		t.Errorf("a read that hangs gives %d, %v", v, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if v, err := Within(ctx, &Reads{}, "", time.Hour, hangs); !errors.Is(err, ErrStalled) || v != 0 {
		t.Errorf("a read that hangs gives %d, %v after its context has ended", v, err)
	}
	if v, err := Within(context.Background(), &Reads{}, "", time.Hour, answers); !errors.Is(err, fs.ErrNotExist) || v != 1 {
		t.Errorf("a read that answers gives %d, %v", v, err)
	}
}
