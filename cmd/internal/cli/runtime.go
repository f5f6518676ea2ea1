package cli

import (
	"path/filepath"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
)

// ResultInterval is how often it is looked whether the self-check of the runtime has left
// another result.
const ResultInterval = 10 * time.Second

// AskResult returns what the result of the self-check says, and looks at the file with
// each beat at most.
func AskResult(m node.Memory) func() node.Runtime {
	path := filepath.Join(m.Dir, filepath.Base(runtimes.ResultPath))
	var answer node.Runtime
	var next time.Duration // since boot
	return func() node.Runtime {
		if now := host.SinceBoot(); now >= next {
			says := runtimes.ReadAnswer(path, host.Now())
			answer = node.Runtime{CDI: node.CDIState(says.CDI), Reason: says.Reason}
			next = now + host.UntilBeat(ResultInterval, now)
		}
		return answer
	}
}
