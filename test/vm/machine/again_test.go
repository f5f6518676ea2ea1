package machine

import (
	"errors"
	"fmt"
	"testing"
)

// TestAgain: a machine whose QEMU crashed is booted three times at most, and one whose tests fail once.
func TestAgain(t *testing.T) {
	crash, failed := fmt.Errorf("%w: signal", errCrashed), errors.New("tests failed")
	for name, c := range map[string]struct {
		ends  []error
		boots int
		want  error
	}{
		"well":            {[]error{nil}, 1, nil},
		"failed":          {[]error{failed}, 1, failed},
		"crashed once":    {[]error{crash, nil}, 2, nil},
		"crashed, failed": {[]error{crash, failed}, 2, failed},
		"crashes":         {[]error{crash, crash, crash}, 3, crash},
	} {
		boots := 0
		err := Again(name, func() error { boots++; return c.ends[boots-1] })
		if boots != c.boots || !errors.Is(err, c.want) {
			t.Errorf("%s: %d boots, %v", name, boots, err)
		}
	}
}
