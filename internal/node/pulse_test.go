package node_test

import (
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/node"
)

// TestPulse: a loop is missed from the first turn to its end, and after its limit.
func TestPulse(t *testing.T) {
	var p node.Pulse
	began := time.Now()
	want := func(after time.Duration, want string) {
		t.Helper()
		got := ""
		if err := p.Alive("waits", began.Add(after), time.Minute); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("after %v: %q, not %q", after, got, want)
		}
	}
	want(time.Hour, "")
	p.Beat(began)
	want(time.Minute, "")
	want(90*time.Second, "the loop that waits has not turned for 1m30s")
	p.Beat(began.Add(time.Minute))
	want(90*time.Second, "")
	p.Rest()
	want(time.Hour, "")
}
