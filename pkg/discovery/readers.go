package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// readers are the reads that have not ended yet, by what they read. While a read hangs in the kernel, no second read of
// the same starts. So a card that hangs costs one goroutine, no matter how often the machine is scanned.
type readers struct{ busy sync.Map }

// errStalled is the error of a read that did not end in time.
var errStalled = errors.New("sysfs did not answer")

// within runs read in its own goroutine and waits until it ends. The error is errStalled if limit passes or ctx ends before
// that, or at once if an earlier read of the same still hangs. Such a read continues in the background, and its result is
// ignored.
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
