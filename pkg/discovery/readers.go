package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// readers are the reads that were given up on and still hang in the kernel, by what they read. As long as one does,
// nobody reads the same again: a card that hangs costs one goroutine, however often the machine is scanned.
type readers struct {
	mu   sync.Mutex
	hung map[string]bool
}

func (r *readers) hangs(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hung[what]
}

// errStalled says that a read was given up on.
var errStalled = errors.New("sysfs did not answer")

func stalledFor(limit time.Duration) error { return fmt.Errorf("%w within %v", errStalled, limit) }

// within runs read in a goroutine of its own and gives up on it when limit has passed or ctx ends, or at once if an
// earlier read of the same still hangs: then the error is errStalled. A read that was given up on goes on by itself:
// nothing it returns later is seen.
func within[T any](ctx context.Context, r *readers, what string, limit time.Duration, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if r.hangs(what) {
		return none, stalledFor(limit)
	}
	done := make(chan answer, 1)
	ended := false // under r.mu
	go func() {
		v, err := read()
		r.mu.Lock()
		ended = true
		delete(r.hung, what)
		r.mu.Unlock()
		done <- answer{v, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-timer.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ended {
		if r.hung == nil {
			r.hung = map[string]bool{}
		}
		r.hung[what] = true
	}
	return none, stalledFor(limit)
}
