package lease

import "sync"

// turns is work for users, one piece at a time for each: who asks for
// much waits longer, and no other user does. It is safe for concurrent use.
type turns struct {
	ready chan struct{} // has a value if there is work

	mu    sync.Mutex
	order []int // the users with work, the next one first
	work  map[int][]func()
}

func newTurns() *turns { return &turns{ready: make(chan struct{}, 1), work: map[int][]func(){}} }

// add adds work for a user.
func (t *turns) add(uid int, do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.work[uid]) == 0 {
		t.order = append(t.order, uid)
	}
	t.work[uid] = append(t.work[uid], do)
	t.signal()
}

func (t *turns) signal() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// next takes out the next piece of work; nil if there is none.
func (t *turns) next() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		return nil
	}
	uid := t.order[0]
	t.order = t.order[1:]
	do := t.work[uid][0]
	if t.work[uid] = t.work[uid][1:]; len(t.work[uid]) > 0 {
		t.order = append(t.order, uid)
	} else {
		delete(t.work, uid)
	}
	if len(t.order) > 0 {
		t.signal()
	}
	return do
}

// has reports whether there is work for a user.
func (t *turns) has(uid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.work[uid]) > 0
}
