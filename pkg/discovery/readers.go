package discovery

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/aside"
)

// readers are the reads that have not ended yet, by what they read: each an *underway.
// While a read hangs in the kernel, no second read of the same starts. So a card that
// hangs costs one goroutine, no matter how often the machine is scanned.
type readers struct{ busy sync.Map }

// underway is a read that has not ended yet.
type underway struct {
	began  time.Time
	ended  chan struct{}
	thread atomic.Int64 // the thread that reads; 0: it has not begun
}

// begin notes that a read begins. If one of the same has not ended yet it returns that
// one, and nothing begins.
func (r *readers) begin(what string) (mine, earlier *underway) {
	mine = &underway{began: time.Now(), ended: make(chan struct{})}
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

// do runs a read. Its goroutine keeps to one thread, by which asleep knows what it waits
// for.
func (u *underway) do(read func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u.thread.Store(int64(unix.Gettid()))
	read()
}

// asleep reports whether the read sleeps in the kernel. One that has not begun waits for
// a processor.
func (u *underway) asleep() bool {
	thread := u.thread.Load()
	return thread != 0 && aside.ThreadAsleep(int(thread))
}

// hangs reports whether the read has gone on for longer than limit, and sleeps.
func (u *underway) hangs(limit time.Duration) bool { return time.Since(u.began) >= limit && u.asleep() }

// errStalled is the error of a read that did not end in time.
var errStalled = errors.New("sysfs did not answer")

// A read hangs if it sleeps in the kernel each time in the last looksAsleep of looks
// while its deadline passes. Else it waits for a processor, and the deadline begins
// again, but not for ever: a driver may wait without sleeping.
const (
	looks, looksAsleep = 16, 4
	deadlinesAtMost    = 30
)

// endsWithin waits until a read has ended. It reports whether it has, and not hung for a
// time or until ctx ended.
func endsWithin(ctx context.Context, limit time.Duration, ended <-chan struct{}, asleep func() bool) bool {
	ticker := time.NewTicker(max(1, limit/looks))
	defer ticker.Stop()
	for range deadlinesAtMost {
		slept := 0
		for i := range looks {
			select {
			case <-ended:
				return true
			case <-ctx.Done():
				return false
			case <-ticker.C:
			}
			if i >= looks-looksAsleep && asleep() {
				slept++
			}
		}
		if slept == looksAsleep {
			return false
		}
	}
	return false
}

// within runs read in its own goroutine and waits until it ends. The error is errStalled
// if read hangs for limit or ctx ends before that, or at once if an earlier read of the
// same has hung for that long. Such a read continues in the background, and its result is
// ignored.
func within[T any](ctx context.Context, r *readers, what string, limit time.Duration, read func() (T, error)) (T, error) {
	var none, value T
	var err error
	stalled := fmt.Errorf("%w within %v", errStalled, limit)
	mine, earlier := r.begin(what)
	for ; earlier != nil; mine, earlier = r.begin(what) {
		if earlier.hangs(limit) || !endsWithin(ctx, limit, earlier.ended, earlier.asleep) {
			return none, stalled
		}
	}
	go mine.do(func() {
		value, err = read()
		r.end(what, mine)
	})
	if !endsWithin(ctx, limit, mine.ended, mine.asleep) {
		return none, stalled
	}
	return value, err
}
