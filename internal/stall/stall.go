// Package stall waits for reads of sysfs that may hang in the kernel, and leaves them behind.
package stall

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

// Reads are the reads that have not ended yet, by what they read: each a *Read. While a
// read hangs in the kernel, no second read of the same starts. So a card that hangs costs
// one goroutine, no matter how often the machine is scanned. The zero value is ready.
type Reads struct{ busy sync.Map }

// Read is a read that may not have ended yet.
type Read struct {
	Began  time.Time
	Ended  chan struct{} // closed when it has ended; nil of a read that is not among Reads
	thread atomic.Int64  // the thread that reads; 0: it has not begun
}

// Begin notes that a read begins. If one of the same has not ended yet it returns that
// one, and nothing begins.
func (r *Reads) Begin(what string) (mine, earlier *Read) {
	mine = &Read{Began: time.Now(), Ended: make(chan struct{})}
	if other, busy := r.busy.LoadOrStore(what, mine); busy {
		return nil, other.(*Read)
	}
	return mine, nil
}

// End notes that a read has ended.
func (r *Reads) End(what string, mine *Read) {
	r.busy.Delete(what)
	close(mine.Ended)
}

// Do runs a read. Its goroutine keeps to one thread, by which Asleep knows what it waits
// for.
func (r *Read) Do(read func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.thread.Store(int64(unix.Gettid()))
	read()
}

// Asleep reports whether the read sleeps in the kernel. One that has not begun waits for
// a processor.
func (r *Read) Asleep() bool {
	thread := r.thread.Load()
	return thread != 0 && aside.ThreadAsleep(int(thread))
}

// Hangs reports whether the read has gone on for longer than limit, and sleeps.
func (r *Read) Hangs(limit time.Duration) bool { return time.Since(r.Began) >= limit && r.Asleep() }

// ErrStalled is the error of a read that did not end in time.
var ErrStalled = errors.New("sysfs did not answer")

// A read hangs if it sleeps in the kernel each time in the last looksAsleep of looks
// while its deadline passes. Else it waits for a processor, and the deadline begins
// again, but not for ever: a driver may wait without sleeping.
const (
	looks, looksAsleep = 16, 4
	deadlinesAtMost    = 30
)

// EndsWithin waits until a read has ended. It reports whether it has, and not hung for a
// time or until ctx ended.
func EndsWithin(ctx context.Context, limit time.Duration, ended <-chan struct{}, asleep func() bool) bool {
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

// Within runs read in its own goroutine and waits until it ends. The error is ErrStalled
// if read hangs for limit or ctx ends before that, or at once if an earlier read of the
// same has hung for that long. Such a read continues in the background, and its result is
// ignored.
func Within[T any](ctx context.Context, r *Reads, what string, limit time.Duration, read func() (T, error)) (T, error) {
	var none, value T
	var err error
	stalled := fmt.Errorf("%w within %v", ErrStalled, limit)
	mine, earlier := r.Begin(what)
	for ; earlier != nil; mine, earlier = r.Begin(what) {
		if earlier.Hangs(limit) || !EndsWithin(ctx, limit, earlier.Ended, earlier.Asleep) {
			return none, stalled
		}
	}
	go mine.Do(func() {
		value, err = read()
		r.End(what, mine)
	})
	if !EndsWithin(ctx, limit, mine.Ended, mine.Asleep) {
		return none, stalled
	}
	return value, err
}

// InParallel calls do with 0 to n-1, sixteen at a time. A server has at most that many
// cards, and they are few enough that no deadline passes while a goroutine waits for a
// processor.
func InParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			do(i)
			<-slots
		})
	}
	wg.Wait()
}
