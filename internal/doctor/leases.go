package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// LeaseService is where leases of a machine are looked for.
type LeaseService struct {
	Root     host.Root
	StateDir string // of lpuctl, on this machine
	Scan     Scan
	// MayConnect returns why this user may not connect to a socket; nil: by its mode.
	MayConnect func(socket string) error
}

// Leasing returns the check of the lease service. The arbiter is not asked, because that
// would start it.
func Leasing(s LeaseService) Check {
	const about = "the lease service"
	return Check{Leases, about, func(ctx context.Context) Result {
		var r Result
		enabled := runtimes.Systemd(s.Root) && runtimes.UnitOf(s.Root, leaseSocket).Enabled
		socket, err := s.Root.Resolve(lease.Socket)
		if err != nil {
			return Unable(about, err)
		}
		there := host.State(socket) != ""
		switch {
		case !there && !enabled:
			r.Absent = "leases are not set up (" + leaseSocket + ")"
		case !there:
			r.addUnreachable("its socket is not there: " + lease.Socket)
		default:
			s.lookAtSocket(&r, socket)
		}
		s.lookAtRecords(&r)
		if inv, err := s.Scan(ctx); err == nil { // another link says why not
			r.Findings = append(r.Findings, findingsOf(inv, Leases)...)
		}
		return r
	}}
}

// lookAtSocket finds out whether the arbiter can be reached, and by this user.
func (s *LeaseService) lookAtSocket(r *Result, socket string) {
	files, err := lease.FilesOf(s.Root, s.StateDir)
	runs := false
	if err == nil {
		runs, _ = files.Arbiter()
	}
	listening, unseen := s.Root.Listening()
	switch {
	case runs:
		r.Says = "the arbiter runs"
	case unseen != nil:
		r.Unseen = append(r.Unseen, Unseen{"whether the arbiter can be reached", unseen.Error(),
			cmp.Or(right(unseen), "look with the /proc of the host")})
	case listening[lease.Socket], listening["/var"+lease.Socket]:
		r.Says = "systemd listens, and starts the arbiter when it is needed"
	default:
		r.addUnreachable("no program listens at " + lease.Socket)
	}
	may := s.MayConnect
	if may == nil {
		may = func(socket string) error { return unix.Faccessat(unix.AT_FDCWD, socket, unix.W_OK, unix.AT_EACCESS) }
	}
	if err := may(socket); errors.Is(err, fs.ErrPermission) {
		r.Unseen = append(r.Unseen, Unseen{"what the arbiter says to this user", lease.Socket + ": " + err.Error(),
			"be in the group lpu: sudo usermod -aG lpu USER, and log in again"})
	}
}

func (r *Result) addUnreachable(message string) {
	r.Findings.Add(finding.LeaseUnreachable, leaseSocket, message,
		"sudo systemctl restart "+leaseSocket+"; if it fails: journalctl -u "+leaseSocket)
}

// lookAtRecords reads what the arbiter has written down.
func (s *LeaseService) lookAtRecords(r *Result) {
	files, err := lease.FilesOf(s.Root, s.StateDir)
	if err != nil {
		r.Unseen = append(r.Unseen, Unseen{"what users have leased", err.Error(), right(err)})
		return
	}
	given := 0
	for _, f := range []lease.File{files.Leases, files.Reservations} {
		record, err := f.Peek()
		switch {
		case errors.Is(err, fs.ErrPermission):
			r.Unseen = append(r.Unseen, Unseen{"what users have leased", err.Error(), "run it as root"})
		case err != nil:
			r.Findings.Add(finding.LeaseRecords, leaseSocket, "a record cannot be used, and has not been put aside: "+host.Reason(err).Error(),
				lease.UnreadError{Err: err}.Remedy()).At(f.Path, 0)
		case record != nil:
			given += len(record.Leases)
		}
	}
	if r.Absent == "" && given > 0 {
		r.Says += fmt.Sprintf("; %d leases and waiting wishes", given)
	}
}
