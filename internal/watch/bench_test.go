package watch_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
)

// BenchmarkRest is what serve does each second while nothing changes.
func BenchmarkRest(b *testing.B) {
	root := filepath.Join(b.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 8}).Write(root); err != nil {
		b.Fatal(err)
	}
	now := time.Hour
	w := watch.New(root, watch.Options{}, func() time.Duration { return now })
	for range 3 { // until it is settled
		if _, err := w.Scan(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := w.Scan(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
