package dra

import "slices"

// Starts are the positions on a ring of n LPUs at which its arcs of a size begin, in the
// order in which the scheduler is to take them: it takes the first that is free. All of a
// ring is one arc. On a chain no arc goes past the end.
//
// On a ring of 8 it is the order that left the most room in a search (test/allocation
// -orders; figures in docs/allocation-notes.md). On others single LPUs are taken from one
// end and arcs from the other.
func Starts(n, size int, closed bool) (starts []int) {
	last := n - size
	if closed && size < n {
		last = n - 1
		if n == 8 {
			return slices.Clone(startsOf8()[size])
		}
	}
	for start := range last + 1 {
		starts = append(starts, start)
	}
	if size > 1 {
		slices.Reverse(starts[:n-size+1])
		slices.Reverse(starts[n-size+1:])
	}
	return starts
}

// startsOf8 is what the search found, by size.
func startsOf8() [8][]int {
	return [8][]int{
		1: {1, 0, 3, 2, 4, 7, 6, 5},
		2: {2, 0, 1, 6, 4, 7, 3, 5},
		3: {1, 0, 7, 6, 2, 5, 3, 4},
		4: {4, 5, 6, 7, 0, 3, 2, 1},
		5: {1, 0, 7, 6, 5, 2, 4, 3},
		6: {2, 1, 0, 3, 4, 5, 6, 7},
		7: {4, 1, 0, 2, 3, 5, 6, 7},
	}
}
