package broken

import (
	"os"
	"testing"

	"github.com/hyperaccel/lpuctl/test/long"
)

func TestMain(m *testing.M) {
	code := m.Run()
	RemoveTools()
	os.Exit(code)
}

// TestBroken breaks a node, wants doctor to name the cause first, carries out the remedy, and wants nothing to be broken then.
func TestBroken(t *testing.T) {
	for i, r := range rows() {
		if !r.devices && !long.Takes(i, 1) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if r.devices && os.Geteuid() != 0 {
				t.Skip("only root can make device files")
			}
			r.try(t, nil)
		})
	}
}
