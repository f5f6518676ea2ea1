package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/exporter"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Exit codes, as scripts and boot units rely on them.
const (
	ExitDone   = 0
	ExitFailed = 1 // could not read, write or connect; a file that cannot be parsed
	ExitUsage  = 2
	ExitFound  = 3 // worked and found something
	ExitNoLPU  = 4 // no LPU on this node
)

// ExitError carries an exit code and, where there is something to say, the error and its
// remedy.
type ExitError struct {
	Code   int
	Err    error
	Remedy string
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Fail is an error with an exit code and a remedy.
func Fail(code int, remedy, format string, args ...any) *ExitError {
	return &ExitError{Code: code, Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// WithRemedy is an error with what to do about it.
func WithRemedy(err error, remedy string) error { return Fail(ExitFailed, remedy, "%w", err) }

// Found ends a command that worked and found something, which it has shown already.
func Found() error { return &ExitError{Code: ExitFound} }

// FoundIn is found if one of the findings is more than a note.
func FoundIn(findings finding.List) error {
	if findings.MoreThanNotes() {
		return Found()
	}
	return nil
}

// NoLPU is the error of a command that needs an LPU.
func NoLPU(root host.Root) error {
	return Fail(ExitNoLPU, "", "no LPU on this node (looked at the PCI devices under %s)", root)
}

// Usage is a usage error: wrong arguments, flags or variables.
func Usage(format string, args ...any) error {
	return Fail(ExitUsage, "", format, args...)
}

// CodeOf is the exit code of an error.
func CodeOf(err error) int {
	if err == nil {
		return ExitDone
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	if errors.As(err, new(*allocate.Refusal)) || errors.As(err, new(*launch.Refusal)) {
		return ExitFound
	}
	if errors.As(err, new(*exporter.TakenError)) {
		return ExitUsage
	}
	return ExitFailed
}

// RemedyFor says what to do about an error; "" if the error says it all.
func RemedyFor(err error) string {
	if e, ok := errors.AsType[*ExitError](err); ok && e.Remedy != "" {
		return e.Remedy
	}
	if r, ok := errors.AsType[*launch.Refusal](err); ok {
		return r.Remedy()
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
	return cmp.Or(finding.RemedyOf(err), remedyByKind(err))
}

// remedyByKind says what to do about errors of files.
func remedyByKind(err error) string {
	if remedy := discovery.Remedy(err); remedy != "" {
		return remedy
	}
	switch {
	case errors.As(err, new(discovery.NameError)):
		return "lpuctl list shows every LPU"
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
