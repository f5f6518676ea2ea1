package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// readers are the reads under way, by what they read. As long as one hangs in the kernel, nobody reads the same again:
// a card that hangs costs one goroutine, however often the machine is scanned.
type readers struct{ busy sync.Map }

// errStalled says that a read was given up on.
var errStalled = errors.New("sysfs did not answer")

// within runs read in a goroutine of its own and gives up on it when limit has passed or ctx ends, or at once if an
// earlier read of the same still hangs: then the error is errStalled. A read that was given up on goes on by itself:
// nothing it returns later is seen.
func within[T any](ctx context.Context, r *readers, what string, limit time.Duration, read func() (T, error)) (T, error) {
	var none, value T
	var err error
	stalled := fmt.Errorf("%w within %v", errStalled, limit)
	if _, busy := r.busy.LoadOrStore(what, true); busy {
		return none, stalled
	}
	done := make(chan struct{})
	go func() {
		value, err = read()
		r.busy.Delete(what)
		close(done)
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
		return none, stalled
	}
}
