//go:build race

package aside

// The race detector would follow package atomic into the other process, which has no
// runtime. It is used on processors that keep the order of writes.

//go:norace
//go:nosplit
func load(counter *uint64) uint64 { return *counter }

//go:norace
//go:nosplit
func store(counter *uint64, n uint64) { *counter = n }
