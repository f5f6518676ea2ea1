package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func newLeaseCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Share the LPUs of a node among its users: the arbiter",
		Long: `Users lease LPUs with lpuctl run and reserve them with lpuctl reserve. Both ask an arbiter, which is root's and knows who has
what. systemd starts it when somebody asks: sudo systemctl enable --now lpuctl-lease.socket.
Who may ask are root and the group lpu: sudo usermod -aG lpu USER.`,
		Example: `  sudo systemctl enable --now lpuctl-lease.socket
  sudo lpuctl lease serve --socket /tmp/lease.sock    # by hand, to see what it does
  lpuctl lease hooks                                  # LPUs that are kept back after a lease, and why`,
	}
	cmd.AddCommand(newLeaseServeCommand(a), newLeaseHooksCommand(a))
	return cmd
}

func newLeaseServeCommand(a *app) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be the arbiter of leases and reservations",
		Long: `serve gives LPUs to those who ask for them over a socket. A lease lasts as long as its connection is open, in whatever process; a
reservation until its time is over. It never gives away an LPU that is leased, reserved for another user, cordoned, unhealthy or held
open by any process.

systemd starts it (lpuctl-lease.socket, lpuctl-lease.service), and it ends by itself when nobody has been connected for ten seconds and
no lease is bound to a container.
Between two leases of an LPU it runs leases.hook, if the config file names a program there (lpuctl lease hooks). A container that is
bound to a lease is ended 30 seconds after a SIGTERM when the time of the lease is over.
systemd also keeps its connections: when it is killed or restarted, no user loses a lease. When a signal ends it, the exit code is 143, and
systemd starts it again, unless that was systemctl stop. With --socket it is run by hand; then leases end with it. What one user may
have is set by leases.maxLPUs, leases.maxHours and leases.maxWaiting in the config file, and leases.backfill lets short leases go first
where they delay no other. After a change there: sudo systemctl try-restart lpuctl-lease.service.

How leases work: /usr/share/doc/lpuctl/leases.md.`,
		Example: `  sudo systemctl enable --now lpuctl-lease.socket    # the usual way
  sudo lpuctl lease serve --socket /run/lpuctl/lease.sock`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serveLeases(cmd, socket) },
	}
	cmd.Flags().StringVar(&socket, "socket", "", "listen at `PATH`, in place of the socket that systemd has passed")
	return cmd
}

// leaseIdle is how long the arbiter stays when no program is connected. systemd starts it
// again.
const leaseIdle = 10 * time.Second

// exitStopped says to systemd that a signal has ended the arbiter: lpuctl-lease.service
// starts it again, unless systemd has sent the signal. After 0 it waits until a client
// comes.
const exitStopped = 128 + int(unix.SIGTERM)

func (a *app) serveLeases(cmd *cobra.Command, socket string) error {
	if err := a.SetUpDaemonLog(cmd); err != nil {
		return err
	}
	arbiter, err := a.newArbiter()
	if err != nil {
		return err
	}
	if socket == "" {
		err = passed(arbiter)
		arbiter.Idle = leaseIdle
		if name, ok := a.Env("NOTIFY_SOCKET"); ok {
			arbiter.Store = &lease.Store{Socket: name}
		}
	} else {
		arbiter.Listener, err = listenForLeases(socket)
	}
	if err != nil {
		return err
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	err = arbiter.Serve(cmd.Context())
	if err == nil && socket == "" && cmd.Context().Err() != nil {
		return &cli.ExitError{Code: exitStopped}
	}
	return err
}

// newArbiter is the arbiter of this node, without a socket. A config file that has faults
// does not keep it from starting: systemd would start it again and again. Then it refuses
// every wish with these faults.
func (a *app) newArbiter() (*lease.Arbiter, error) {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return nil, err
	}
	files, err := lease.FilesOf(a.Root, memory.Dir)
	if err != nil {
		return nil, err
	}
	arbiter := &lease.Arbiter{
		Leases: files.Leases, Reservations: files.Reservations, Log: a.Log,
	}
	arbiter.Closed = func(lpus []pci.Address) (why, remedy string) {
		of, err := a.leasing(memory)
		if err != nil {
			return err.Error(), cli.RemedyFor(err)
		}
		return of.ClosedSince(lpus)
	}
	people := person.In(a.Root, leaseGroup)
	arbiter.Look = a.lookForLeases(people)
	arbiter.Describe = func(ctx context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
		return lease.Identify(ctx, people, withProgram(p))
	}
	socket, err := a.Root.Resolve(dockerSocket)
	if err != nil {
		return nil, err
	}
	arbiter.Daemons, arbiter.End = []string{socket}, (&lease.Looker{Root: a.Root, People: people}).End
	if err := a.LoadConfig(); err != nil {
		a.Log.Error("the configuration cannot be used, and so nothing is leased", "error", err)
		arbiter.Hook = &lease.Hook{} // there may be one, and what is kept back for it stays so
		look := arbiter.Look
		arbiter.Look = func(ctx context.Context, seek lease.Seek) (lease.View, error) {
			view, err := look(ctx, seek)
			return view, cmp.Or(err, a.learnHook(arbiter.Hook))
		}
		return arbiter, nil
	}
	arbiter.Usage = &usage.Journal{Dir: filepath.Join(memory.Dir, "usage"), Keep: time.Duration(a.Config.Leases.UsageDays) * 24 * time.Hour}
	if arbiter.Hook, err = a.leaseHook(); err != nil {
		return nil, err
	}
	if arbiter.Hook != nil {
		if f := unsafeHook(arbiter.Hook); f != nil {
			a.Log.Error(f.Message, "remedy", f.Remedy, "id", f.ID)
		}
	}
	return arbiter, nil
}

// learnHook sets the hook of an arbiter that was started with a config file that had faults,
// when these are mended. No hook runs before a look at the node that has read the file.
func (a *app) learnHook(hook *lease.Hook) error {
	if a.Config == nil || hook.Program != "" {
		return nil
	}
	there, err := a.leaseHook()
	if there != nil && err == nil {
		*hook = *there
	}
	return err
}

// dockerSocket is where the daemon of docker listens: who may write to it is as good as
// root (docs.docker.com/engine/security).
const dockerSocket = "/run/docker.sock"

// passed gives the arbiter what systemd has passed: the socket, and the connections of
// the arbiter before.
func passed(arbiter *lease.Arbiter) error {
	for _, f := range activation.Files(true) {
		if strings.HasPrefix(f.Name(), lease.StoredPrefix) {
			arbiter.Kept = append(arbiter.Kept, f)
			continue
		}
		listener, err := net.FileListener(f)
		f.Close()
		if l, ok := listener.(*net.UnixListener); err == nil && ok {
			arbiter.Listener = l
		}
	}
	if arbiter.Listener == nil {
		return cli.Fail(cli.ExitUsage, "run it as systemctl start lpuctl-lease.socket, or with --socket PATH", "systemd has passed no socket")
	}
	return nil
}

// leaseGroup may use the socket of the arbiter, as in lpuctl-lease.socket.
const leaseGroup = "lpu"

// listenForLeases listens at a path for root and, where there is such a group, for the
// group lpu.
func listenForLeases(socket string) (*net.UnixListener, error) {
	gid := -1
	if group, err := user.LookupGroup(leaseGroup); err == nil {
		gid, _ = strconv.Atoi(group.Gid)
	}
	if err := wholefile.MakeDir(filepath.Dir(socket)); err != nil {
		return nil, err
	}
	return lease.Listen(socket, gid)
}

// lookForLeases returns what looks at the node for the arbiter.
func (a *app) lookForLeases(people *person.People) func(context.Context, lease.Seek) (lease.View, error) {
	looker := lease.Looker{Root: a.Root, People: people}
	return func(ctx context.Context, seek lease.Seek) (lease.View, error) {
		return a.viewForLeases(ctx, seek, &looker)
	}
}

func (a *app) viewForLeases(ctx context.Context, seek lease.Seek, looker *lease.Looker) (lease.View, error) {
	inv, memory, err := a.ScanOnly(ctx, discovery.Options{})
	if err != nil {
		return lease.View{}, err
	}
	memory.SetApart = nil // which is for everybody else
	inv = inv.WithCordons(memory.Cordons().Read())
	view, err := looker.Look(ctx, inv, seek)
	c := a.Config.Leases
	view.Pool, view.Backfill, view.Limits = c.Addresses(), c.Backfill, lease.Limits{
		LPUs: c.MaxLPUs, Time: time.Duration(c.MaxHours) * time.Hour, Waiting: c.MaxWaiting, AllWaiting: c.MaxWaitingInAll,
	}
	of, podsErr := a.leasing(memory)
	if podsErr != nil {
		return view, podsErr
	}
	of.Look(ctx, &view)
	return view, err
}

// leasing is what pods have of the LPUs that can be leased. The config was read.
func (a *app) leasing(memory node.Memory) (*pods.Leasing, error) {
	of, err := a.Pods(memory)
	if err != nil {
		return nil, err
	}
	return &pods.Leasing{Node: *of, Pool: a.Config.Leases.Addresses(), Remedy: cli.RemedyFor}, nil
}

// withProgram adds the name of the program, if it is known, on one line: a process can give
// itself any name, and tables show it.
func withProgram(p lease.Peer) lease.Peer {
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err == nil {
		p.Command = strings.TrimSpace(strings.Map(func(r rune) rune {
			if host.NotText(r) || r < ' ' {
				return -1
			}
			return r
		}, string(comm)))
	}
	return p
}
