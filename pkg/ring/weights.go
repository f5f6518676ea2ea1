package ring

import "math/bits"

// vector is how many free arcs there are of each length, packed so that vectors compare as numbers: a longer arc
// outweighs all shorter ones. So the vector that is largest keeps the longest arcs, sorted in descending order.
type vector struct{ high, low uint64 }

func (v vector) plus(o vector) vector {
	low, carry := bits.Add64(v.low, o.low, 0)
	high, _ := bits.Add64(v.high, o.high, carry)
	return vector{high, low}
}

func (v vector) minus(o vector) vector {
	low, borrow := bits.Sub64(v.low, o.low, 0)
	high, _ := bits.Sub64(v.high, o.high, borrow)
	return vector{high, low}
}

func (v vector) less(o vector) bool {
	return v.high < o.high || v.high == o.high && v.low < o.low
}

// weights is what one free arc of each length adds to a vector.
type weights [loopMax + 1]vector

// newWeights gives each length as many bits as the most arcs of it need that there can be. Up to 64 cards in all
// need 126 bits at most. Beyond that the shortest lengths may find no room: then they do not count.
func newWeights(loops []loop) weights {
	var w weights
	at := 128
	for length := loopMax; length > 0; length-- {
		most := 0
		for _, l := range loops {
			most += (len(l.cards) + 1) / (length + 1)
		}
		at -= bits.Len(uint(most))
		if at < 0 {
			break
		}
		if at >= 64 {
			w[length].high = 1 << (at - 64)
		} else {
			w[length].low = 1 << at
		}
	}
	return w
}
