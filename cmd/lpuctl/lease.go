package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/person"
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
  sudo lpuctl lease serve --socket /tmp/lease.sock    # by hand, to see what it does`,
	}
	cmd.AddCommand(newLeaseServeCommand(a))
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
systemd also keeps its connections: when it is killed or restarted, nobody loses a lease. With --socket it is run by hand; then leases
end with it. What one user may have is set by leases.maxLPUs and leases.maxHours in the config file. After a change there:
sudo systemctl try-restart lpuctl-lease.service.

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
	return arbiter.Serve(cmd.Context())
}

// newArbiter is the arbiter of this node, without a socket. A config file that has faults
// does not keep it from starting: systemd would start it again and again. Then it refuses
// every wish with these faults.
func (a *app) newArbiter() (*lease.Arbiter, error) {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return nil, err
	}
	leases, reservations, err := a.LeaseFiles(memory)
	if err != nil {
		return nil, err
	}
	arbiter := &lease.Arbiter{
		Leases: leases, Reservations: reservations, Look: a.lookForLeases, Log: a.Log,
	}
	people := person.In(a.Root, leaseGroup)
	arbiter.Describe = func(ctx context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
		return lease.Identify(ctx, people, withProgram(p))
	}
	arbiter.Closed = func(lpus []pci.Address) (why, remedy string) { return a.closedSince(memory, lpus) }
	if err := a.LoadConfig(); err != nil {
		a.Log.Error("the configuration cannot be used, and so nothing is leased", "error", err)
	}
	return arbiter, nil
}

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

// lookForLeases is a look at the node for the arbiter.
func (a *app) lookForLeases(ctx context.Context, containers []string) (lease.View, error) {
	inv, memory, err := a.ScanOnly(ctx, discovery.Options{})
	if err != nil {
		return lease.View{}, err
	}
	memory.SetApart = nil // which is for everybody else
	inv = inv.WithCordons(memory.Cordons().Read())
	view, err := lease.Look(ctx, a.Root, inv, containers)
	c := a.Config.Leases
	view.Pool, view.Limits = c.Addresses(), lease.Limits{LPUs: c.MaxLPUs, Time: time.Duration(c.MaxHours) * time.Hour}
	closed, lately := a.leasesClosed(memory)
	if closed != "" { // what pods have changes nothing, and a kubelet that hangs takes its time
		view.Closed = closed
		return view, err
	}
	pods, unknown := a.holders(ctx, memory)
	if unknown != nil && view.Pool == nil {
		view.Closed, view.ClosedRemedy = podsUnknown(unknown)
	}
	for i := range inv.LPUs {
		if address := inv.LPUs[i].Address; lately != "" && pods[address] == "" {
			pods[address] = lately
		}
	}
	view.Pods = pods
	return view, err
}

// podsUnknown says why no LPU can be leased, and what to do, where it is not known which
// LPUs pods have.
func podsUnknown(err error) (why, remedy string) {
	return "it cannot be known which LPUs pods have: " + err.Error(), cli.RemedyFor(err)
}

// holders are the LPUs that pods have from plugin or driver, whether or not these run:
// pods outlive them. With an error it is not known of one of the two.
func (a *app) holders(ctx context.Context, memory node.Memory) (map[pci.Address]string, error) {
	said, claims, untold, err := a.podsAndClaims(ctx, memory)
	if err != nil {
		return map[pci.Address]string{}, err
	}
	all := said.InPods()
	claimed, unread := claims.Holders()
	maps.Copy(all, claimed)
	return all, errors.Join(untold, unread)
}

// closedSince says why LPUs that were free cannot be leased any more, and what to do
// about that. What a claim has is written down before its pod starts, so the kubelet need
// not be asked.
func (a *app) closedSince(memory node.Memory, lpus []pci.Address) (why, remedy string) {
	if closed, lately := a.leasesClosed(memory); closed != "" || lately != "" {
		return cmp.Or(closed, lately), ""
	}
	// This comes after the above: a program that has ended meanwhile has written it.
	store, err := a.claims(memory)
	claims := map[pci.Address]string{}
	if err == nil {
		claims, err = store.Holders()
	}
	for _, address := range lpus {
		if by := claims[address]; by != "" {
			return address.String() + " is in use by " + by, ""
		}
	}
	if err != nil && a.Config.Leases.Addresses() == nil {
		return podsUnknown(err)
	}
	return "", ""
}

// leasesClosed says why no LPU can be leased: Kubernetes hands them out, and none are set
// apart; "": they can. Lately says who may have any of them, and is not named by the
// kubelet yet.
func (a *app) leasesClosed(memory node.Memory) (closed, lately string) {
	if a.Config.Leases.Addresses() != nil {
		return "", ""
	}
	now, err := a.standing(memory)
	if err != nil {
		return err.Error(), ""
	}
	if closed = now.Kubernetes(); closed != "" {
		closed += "; and the config file sets none apart for leases"
	}
	if now.Lately {
		lately = "a pod, perhaps, that was given an LPU a moment ago"
	}
	return closed, lately
}

// withProgram adds the name of the program, if it is known.
func withProgram(p lease.Peer) lease.Peer {
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err == nil {
		p.Command = strings.TrimSpace(strings.Map(func(r rune) rune {
			if host.NotText(r) {
				return -1
			}
			return r
		}, string(comm)))
	}
	return p
}
