package cli

import (
	"log/slog"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// Presence shows the exporter that serve runs. Pods are served also where that cannot be shown.
type Presence struct {
	filelock.Presence

	Log   *slog.Logger
	fault LatestFault
}

// PresencePath is what the lock is named after by which serve shows that it runs. It lies where serve in a container sees it too.
func PresencePath(memory node.Memory) string { return filepath.Join(memory.Dir, "serve") }

// Tell shows that serve runs, and logs it once if that fails.
func (p *Presence) Tell() {
	if err := p.Show(); p.fault.IsNew(err) {
		p.Log.Warn("lpuctl exporter cannot see that serve runs", "error", err)
	}
}
