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
	a.arriving = map[*connection]bool{{}: true}
	if a.idle() {
		t.Error("it is idle")
	}
}

// TestThereIsRoomAgain: who comes when too many arrive waits until one of these is known.
func TestThereIsRoomAgain(t *testing.T) {
	a := &Arbiter{arriving: map[*connection]bool{}, arrivals: make(chan *net.UnixConn)}
	for range maxArriving {
		if a.room() == nil {
			t.Fatalf("there is no room beside %d", len(a.arriving))
		}
		a.arriving[&connection{}] = true
	}
	if a.room() != nil {
		t.Errorf("there is room beside %d", len(a.arriving))
	}
	for c := range a.arriving {
		delete(a.arriving, c)
		break
	}
	if a.room() == nil {
		t.Error("there is no room again")
	}
}
