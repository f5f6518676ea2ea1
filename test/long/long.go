// Package long lets tests that try many cases try more of them, with new random numbers, where LPUCTL_LONG is set in the environment.
// It is a number, by which they are longer. .ci/long sets it.
package long

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Rounds is how often a test does what it does: n times, and LPUCTL_LONG times as often where that is set.
func Rounds(t testing.TB, n int) int {
	return n * int(number(t, "LPUCTL_LONG", 1))
}

// Steps is [Rounds] of a test that takes minutes: a quarter of them with the race detector, which makes each ten times slower.
func Steps(t testing.TB, n int) int {
	if Race {
		n /= 4
	}
	return Rounds(t, n)
}

// Takes reports whether a test tries its case number i: one case of each n, or of each 4n with the race detector, and every case where
// LPUCTL_LONG is set.
func Takes(i, n int) bool {
	if Race {
		n *= 4
	}
	return i%n == 0 || os.Getenv("LPUCTL_LONG") != ""
}

// Rand gives a test its random numbers: the same in each run, but new ones where LPUCTL_LONG is set. A test that fails
// prints the seed; with LPUCTL_SEED set to it the numbers come again.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(1)
	if os.Getenv("LPUCTL_LONG") != "" {
		seed = uint64(time.Now().UnixNano())
	}
	seed = number(t, "LPUCTL_SEED", seed)
	t.Logf("LPUCTL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func number(t testing.TB, variable string, otherwise uint64) uint64 {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
