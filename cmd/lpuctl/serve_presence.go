package main

import (
	"log/slog"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// presence shows the exporter that serve runs. Pods are served also where that cannot be shown.
type presence struct {
	filelock.Presence

	log   *slog.Logger
	fault latestFault
}

// presencePath is what the lock is named after by which serve shows that it runs. It lies where serve in a container sees it too.
func presencePath(memory node.Memory) string { return filepath.Join(memory.Dir, "serve") }

func (p *presence) show() {
	if err := p.Show(); p.fault.isNew(err) {
		p.log.Warn("lpuctl exporter cannot see that serve runs", "error", err)
	}
}
