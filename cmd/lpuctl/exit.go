package main

import (
	"errors"
	"io/fs"
	"os/exec"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/isolate"
)

// Exit codes of run besides those of what it starts, as shells, env and nohup have them.
const (
	exitNotStarted    = 125 // run itself has failed
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the number of the signal
)

// ended is the exit code of what run has started, and ended with it.
type ended int

func (ended) Error() string { return "" }

// codeOfRun is the exit code of run.
func codeOfRun(err error) int {
	code, hasEnded := errors.AsType[ended](err)
	e, failed := errors.AsType[*isolate.ExecError](err)
	switch {
	case hasEnded:
		return int(code)
	case failed && (errors.Is(e.Err, fs.ErrNotExist) || errors.Is(e.Err, exec.ErrNotFound)):
		return exitNotFound
	case failed:
		return exitNotExecutable
	case err != nil:
		return exitNotStarted
	}
	return cli.ExitDone
}
