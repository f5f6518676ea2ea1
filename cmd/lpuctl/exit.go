package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/pkg/allocate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/lease"
)

// Exit codes, as scripts and boot units rely on them.
const (
	exitDone   = 0
	exitFailed = 1 // could not read, write or connect; a file that cannot be parsed
	exitUsage  = 2
	exitFound  = 3 // worked and found something
	exitNoLPU  = 4 // no LPU on this node
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
	return exitDone
}

// exitError carries an exit code and, where there is something to say, the error and its remedy.
type exitError struct {
	code   int
	err    error
	remedy string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// fail is an error with an exit code and a remedy.
func fail(code int, remedy, format string, args ...any) *exitError {
	return &exitError{code: code, err: fmt.Errorf(format, args...), remedy: remedy}
}

// found ends a command that worked and found something, which it has shown already.
func found() error { return &exitError{code: exitFound} }

// foundIn is found if one of the findings is more than a note.
func foundIn(findings finding.List) error {
	if findings.MoreThanNotes() {
		return found()
	}
	return nil
}

func noLPU(root host.Root) error {
	return fail(exitNoLPU, "", "no LPU on this node (looked at the PCI devices under %s)", root)
}

func usage(format string, args ...any) error {
	return fail(exitUsage, "", format, args...)
}

func codeOf(err error) int {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if errors.As(err, new(*allocate.Refusal)) {
		return exitFound
	}
	return exitFailed
}

// remedyFor says what to do about an error; "" if the error says it all.
func remedyFor(err error) string {
	if e, ok := errors.AsType[*exitError](err); ok && e.remedy != "" {
		return e.remedy
	}
	if r, ok := errors.AsType[*allocate.Refusal](err); ok {
		return r.Remedy
	}
	if r, ok := errors.AsType[*lease.Refusal](err); ok {
		return r.Remedy
	}
	if c, ok := errors.AsType[*cdi.Conflict](err); ok {
		return "with two such files in one directory runtimes refuse the device: remove " + c.File +
			", or give lpuctl another kind (cdi.kind in the config file)"
	}
	if f, ok := errors.AsType[*isolate.Forbidden](err); ok {
		return f.Remedy + "; or with --no-isolation, and the command can open the nodes of all LPUs"
	}
	if errors.As(err, new(*isolate.ExecError)) {
		return ""
	}
	return remedyByKind(err)
}

// remedyByKind says what to do about errors of files.
func remedyByKind(err error) string {
	switch {
	case errors.As(err, new(discovery.NameError)):
		return "lpuctl list shows every LPU"
	case errors.Is(err, discovery.ErrNoSysfs) && errors.Is(err, fs.ErrPermission):
		return "run as a user who may read sysfs there"
	case errors.Is(err, discovery.ErrNoSysfs):
		return "check --root, and that sysfs is mounted there (mount -t sysfs sysfs /sys)"
	case errors.Is(err, unix.EROFS):
		return "the file system is mounted read-only: choose another directory (--spec-dir), or remount it"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "the disk is full; what was there before is untouched: free some space and run it again"
	case errors.Is(err, unix.EIO):
		return "the disk or file system fails; what was there before is untouched: see dmesg"
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EEXIST):
		return "a file stands where a directory should be: move it away, or choose another directory"
	case errors.Is(err, fs.ErrPermission):
		return "run as root, or choose a place you may write to"
	}
	return ""
}
