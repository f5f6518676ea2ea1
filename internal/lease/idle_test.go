package lease

import (
	"net"
	"testing"
)

// TestWhoArrivesKeepsTheArbiter: it does not end while it is not known yet who has connected.
func TestWhoArrivesKeepsTheArbiter(t *testing.T) {
	a := &Arbiter{book: NewBook()}
	if !a.idle() {
		t.Error("it is not idle at first")
	}
	a.arriving = map[*net.UnixConn]bool{{}: true}
	if a.idle() {
		t.Error("it is idle")
	}
}
