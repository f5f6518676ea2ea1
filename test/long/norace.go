//go:build !race

package long

// Race is whether the race detector is on.
const Race = false
