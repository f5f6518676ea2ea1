//go:build !race

package aside

import "sync/atomic"

// The counters are read and written in order with what they count. The compiler makes
// single instructions of these, so that the other process can do it too.

//go:nosplit
func load(counter *uint64) uint64 { return atomic.LoadUint64(counter) }

//go:nosplit
func store(counter *uint64, n uint64) { atomic.StoreUint64(counter, n) }
