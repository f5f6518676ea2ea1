package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// readers are the reads that have not ended yet, by what they read: each an *underway. While a read hangs in the kernel, no second read
// of the same starts. So a card that hangs costs one goroutine, no matter how often the machine is scanned.
type readers struct{ busy sync.Map }

// underway is a read that has not ended yet.
type underway struct {
	began time.Time
	ended chan struct{}
}

// begin notes that a read begins. If one of the same has not ended yet it returns that one, and nothing begins.
func (r *readers) begin(what string) (mine, earlier *underway) {
	mine = &underway{time.Now(), make(chan struct{})}
	if other, busy := r.busy.LoadOrStore(what, mine); busy {
		return nil, other.(*underway)
	}
	return mine, nil
}

// end notes that a read has ended.
func (r *readers) end(what string, mine *underway) {
	r.busy.Delete(what)
	close(mine.ended)
}

// errStalled is the error of a read that did not end in time.
var errStalled = errors.New("sysfs did not answer")

// within runs read in its own goroutine and waits until it ends. The error is errStalled if limit passes or ctx ends before
// that, or at once if an earlier read of the same has hung for that long. Such a read continues in the background, and its result is
// ignored.
func within[T any](ctx context.Context, r *readers, what string, limit time.Duration, read func() (T, error)) (T, error) {
	var none, value T
	var err error
	stalled := fmt.Errorf("%w within %v", errStalled, limit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mine, earlier := r.begin(what)
	for ; earlier != nil; mine, earlier = r.begin(what) {
		if time.Since(earlier.began) >= limit {
			return none, stalled
		}
		select {
		case <-earlier.ended:
		case <-ctx.Done():
			return none, stalled
		}
	}
	go func() {
		value, err = read()
		r.end(what, mine)
	}()
	select {
	case <-mine.ended:
		return value, err
	case <-ctx.Done():
		return none, stalled
	}
}
