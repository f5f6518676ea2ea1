package main

import (
	"path/filepath"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/runtimes"
)

// resultInterval is how often serve looks whether the self-check of the runtime has left another result.
const resultInterval = 10 * time.Second

// askResult returns what the result of the self-check says, and looks at the file with each beat at most.
func askResult(m node.Memory) func() runtimes.Answer {
	file := runtimes.ResultFile{Path: filepath.Join(m.Dir, filepath.Base(runtimes.ResultPath))}
	var answer runtimes.Answer
	var next time.Duration // since boot
	return func() runtimes.Answer {
		if now := host.SinceBoot(); now >= next {
			answer, next = file.Answer(host.Now()), now+host.UntilBeat(resultInterval, now)
		}
		return answer
	}
}
