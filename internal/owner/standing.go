package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
)

// SocketPrefix begins the names of the sockets of the device plugin in the kubelet's
// directory: lpuctl-RANDOM.sock.
const SocketPrefix = "lpuctl-"

// presence is what an owner's program shows while it runs. The lock is .owner-plugin.lock
// or .owner-dra.lock.
func (f File) presence(o Owner) filelock.Presence {
	return filelock.Presence{Path: filepath.Join(f.Dir, "owner-"+string(o))}
}

// Runs reports whether the program of an owner runs and may hand out LPUs, by any sign of
// it: it has seen the LPUs of this node, or was started with --owner, or is handing out
// some. The error is that this user cannot see that.
func (f File) Runs(o Owner) (bool, error) {
	present, err := filelock.Present(f.presence(o).Path)
	if present || o != Plugin || f.Sockets == "" {
		return present, err
	}
	listens, unseen := f.listens()
	if listens {
		return true, nil
	}
	return false, errors.Join(err, unseen)
}

// listens reports whether a device plugin of lpuctl listens. One of a release before has
// no lock.
func (f File) listens() (bool, error) {
	entries, err := os.ReadDir(f.Sockets)
	if host.IsAbsent(err) {
		return false, nil
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket || !strings.HasPrefix(e.Name(), SocketPrefix) {
			continue
		}
		listens, unseen := host.Listens(filepath.Join(f.Sockets, e.Name()))
		if listens {
			return true, nil
		}
		err = errors.Join(err, unseen)
	}
	return false, err
}

// noteOf is a moment as a note.
func noteOf(m host.Moment) string { return fmt.Sprintf("%d %s", m.SinceBoot, m.Boot) }

// lately reports whether the device plugin handed out LPUs so short ago that the kubelet
// may not name the pod yet. Of a claim there is a record before its pod starts.
func (f File) lately() bool {
	var noted host.Moment
	_, err := fmt.Sscan(filelock.Noted(f.presence(Plugin).Path), &noted.SinceBoot, &noted.Boot)
	now := host.Now()
	return err == nil && noted.Boot == now.Boot && noted.SinceBoot <= now.SinceBoot && now.SinceBoot-noted.SinceBoot < KubeletSettle
}

// Standing is which programs can hand out the LPUs of a node to pods at one moment, by
// all signs of them.
type Standing struct {
	Record  Record          // zero if Err is set
	Err     error           // the file cannot be used: who runs offers nothing meanwhile
	Running map[Owner]bool  // of those of which it is known
	Unknown map[Owner]error // why it is not known of the others
	// Lately: the device plugin handed out LPUs so short ago that the kubelet may not name
	// the pod yet.
	Lately bool
}

// Stand returns the standing now.
func (f File) Stand() Standing {
	s := Standing{Running: map[Owner]bool{}, Unknown: map[Owner]error{}}
	s.Record, s.Err = f.Read()
	for _, o := range []Owner{Plugin, DRA} {
		if runs, err := f.Runs(o); err != nil {
			s.Unknown[o] = err
		} else {
			s.Running[o] = runs
		}
	}
	s.Lately = f.lately() // last: who has ended meanwhile has noted it before
	return s
}

// Program returns the program by which Kubernetes hands out the LPUs: the owner's if it
// runs, or else the other one, which may become the owner at any time; "" if none is
// known to run. The error is that one may run that cannot be seen.
func (s *Standing) Program() (Owner, error) {
	for _, o := range []Owner{s.Record.Owner, Plugin, DRA} {
		if s.Running[o] {
			return o, nil
		}
	}
	var unseen error
	for _, o := range []Owner{Plugin, DRA} {
		if err := s.Unknown[o]; err != nil {
			unseen = errors.Join(unseen, fmt.Errorf("whether %s runs: %w", o.Program(), err))
		}
	}
	return "", unseen
}

// Kubernetes says by which program Kubernetes hands out the LPUs of this node, or why
// that cannot be known; "" if it does not.
func (s *Standing) Kubernetes() string {
	program, unseen := s.Program()
	switch {
	case program != "":
		return "Kubernetes hands out the LPUs of this node, by " + program.Program()
	case unseen != nil:
		return "it cannot be known whether Kubernetes hands out the LPUs of this node: " + strings.ReplaceAll(unseen.Error(), "\n", "; ")
	}
	return ""
}
