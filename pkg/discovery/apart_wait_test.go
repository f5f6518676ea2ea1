package discovery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
