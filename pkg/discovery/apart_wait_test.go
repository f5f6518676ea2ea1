package discovery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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
				in := endsWithin(t.Context(), deadline, ended, c.asleep)
				if got := time.Since(began); got != c.after || in != (c.done == c.after) {
					t.Errorf("it was waited for %v, want %v; ended: %t", got, c.after, in)
				}
			})
		})
	}
}

// TestASlowCardDelaysNoOther: the next stage of the others begins while that card is waited for.
func TestASlowCardDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &errand{done: make(chan struct{})}, &errand{done: make(chan struct{})}
		close(quick.done)
		s := &scan{Options: Options{CardDeadline: time.Second}}
		var order []string
		names := map[*errand]string{slow: "slow", quick: "quick"}
		note := func(what string) func(*errand) { return func(e *errand) { order = append(order, what+names[e]) } }
		s.goOn(t.Context(), []*errand{slow, quick}, note("finish "), func(errands []*errand) {
			for _, e := range errands {
				note("next ")(e)
				if e == quick {
					close(slow.done)
				}
			}
		})
		want := []string{"finish quick", "next quick", "finish slow", "next slow"}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Error(diff)
		}
	})
}
