package node

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Pulse reports whether a loop still turns. The zero value is that of a loop that does
// not run, which is no error.
type Pulse struct{ turned atomic.Pointer[time.Time] }

// Beat says that the loop turns at this time.
func (p *Pulse) Beat(now time.Time) { p.turned.Store(&now) }

// Rest says that the loop has ended.
func (p *Pulse) Rest() { p.turned.Store(nil) }

// Alive returns an error that names the loop if it runs and has not turned for longer
// than a limit.
func (p *Pulse) Alive(loop string, now time.Time, limit time.Duration) error {
	if turned := p.turned.Load(); turned != nil && now.Sub(*turned) > limit {
		return fmt.Errorf("the loop that %s has not turned for %v", loop, now.Sub(*turned).Round(time.Second))
	}
	return nil
}
