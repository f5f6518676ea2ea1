package dra

// Starts are the positions on a ring of n LPUs at which its arcs of a size begin, in the order in which the scheduler is to take them: it
// takes the first that is free. All of a ring is one arc. On a chain no arc goes past the end.
func Starts(n, size int, closed bool) (order []int) {
	last := n - size
	if closed && size < n {
		last = n - 1
	}
	for _, aligned := range []bool{true, false} {
		for start := 0; start <= last; start++ {
			if (start%size == 0) == aligned {
				order = append(order, start)
			}
		}
	}
	return order
}
