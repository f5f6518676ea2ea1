package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"github.com/hyperaccel/lpuctl/internal/isolate"
)

// Exit codes of a launch besides those of what it starts, as shells, env and nohup have them.
const (
	exitNotStarted    = 125 // the launch itself has failed
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the number of the signal
)

// Ended is the exit code of what was started, and ended with it.
type Ended int

func (Ended) Error() string { return "" }

// Refusal says why nothing is launched, or no device can be named, and what to do.
type Refusal struct {
	text   string
	remedy string
	err    error // behind it, which may be nil
}

func (r *Refusal) Error() string { return r.text }

// Remedy says what to do about it.
func (r *Refusal) Remedy() string { return r.remedy }

// Unwrap returns the error behind it.
func (r *Refusal) Unwrap() error { return r.err }

func refuse(remedy, format string, args ...any) *Refusal {
	err := fmt.Errorf(format, args...)
	return &Refusal{text: err.Error(), remedy: remedy, err: errors.Unwrap(err)}
}

// Code returns the exit code of a launch that ended with an error; 0 for nil.
func Code(err error) int {
	code, hasEnded := errors.AsType[Ended](err)
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
	return 0
}
