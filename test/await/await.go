// Package await waits in tests for what happens. No test passes or fails by how fast the machine is: one limit holds for all, and ends
// only what hangs.
package await

import (
	"errors"
	"os"
	"testing"
	"time"
)

// Limit is more than anything takes that happens at all, on the slowest machine with the race detector: two minutes, or what LPUCTL_AWAIT
// in the environment says, where a test is to fail.
var Limit = limit() //nolint:gochecknoglobals // the environment is read once

func limit() time.Duration {
	if limit, err := time.ParseDuration(os.Getenv("LPUCTL_AWAIT")); err == nil {
		return limit
	}
	return 2 * time.Minute
}

// Until waits until is returns nil, and logs how long that took. After [Limit] the test fails, with the last error.
func Until(t testing.TB, what string, is func() error) {
	t.Helper()
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := is()
		if err == nil {
			t.Logf("%s: after %v", what, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > Limit {
			t.Fatalf("%s: not within %v: %v", what, Limit, err)
		}
		time.Sleep(pause)
	}
}

// For is [Until] for a question that is answered by yes or no.
func For(t testing.TB, what string, is func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if is() {
			return nil
		}
		return errors.New("not yet")
	})
}
