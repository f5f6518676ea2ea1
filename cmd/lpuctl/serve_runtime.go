package main

import (
	"path/filepath"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/pkg/runtimes"
)

// resultInterval is how often serve looks whether the self-check of the runtime has left another result.
const resultInterval = 10 * time.Second

// askResult returns what the result of the self-check says, and looks at the file with each beat at most.
func askResult(m node.Memory) func() plugin.Runtime {
	path := filepath.Join(m.Dir, filepath.Base(runtimes.ResultPath))
	var answer plugin.Runtime
	var next time.Duration // since boot
	return func() plugin.Runtime {
		if now := host.SinceBoot(); now >= next {
			says := runtimes.ReadAnswer(path, host.Now())
			answer = plugin.Runtime{CDI: plugin.CDIState(says.CDI), Reason: says.Reason}
			next = now + host.UntilBeat(resultInterval, now)
		}
		return answer
	}
}
