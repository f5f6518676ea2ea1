package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// A lease lasts as long as a process holds its connection. A container of podman holds it
// by conmon, which inherits it. The containers of docker and nerdctl are started by a
// daemon, which does not: their leases are bound to the id of the container. Of any other
// command it is not known what starts the container, and so it may not leave it behind.

// heldLease is the lease of what run starts. nil: there is none.
type heldLease struct {
	client *lease.Client
	// idFile is where the runtime writes the id of the container, if the lease is to be
	// bound to it; else "".
	idFile string
	dir    string // what is made for that file; "" if the user has named it
}

// hold connects to the arbiter, and hands the connection over to the command: it is the
// lease once LPUs were granted.
func (j *Job) hold() (*heldLease, error) {
	if j.NoLease {
		return nil, nil
	}
	h := &heldLease{}
	byID, err := j.needsID()
	if err == nil && byID {
		err = h.findID(j.Args)
	}
	if err != nil {
		return nil, err
	}
	err = lease.Patiently(context.Background(), max(j.Wait, lease.Patience), func() (err error) {
		h.client, err = lease.DialIn(j.Root)
		return err
	})
	if err != nil {
		if r, ok := errors.AsType[*lease.Refusal](err); ok && r.ID == finding.LeaseUnreachable {
			r.Remedy += "; or --no-lease, and others may be given the same LPUs"
		}
		h.end()
		return nil, err
	}
	if j.DryRun {
		return h, nil
	}
	file, err := h.client.File()
	if err == nil {
		err = handOver(file)
	}
	if err != nil {
		h.end()
		return nil, err
	}
	return h, nil
}

// leaseDescriptor is the lowest number of the descriptor that a command gets of its
// lease. Programs use low numbers for their own.
const leaseDescriptor = 50

// handOver lets the command, and all that it starts, inherit the lease: it lasts until
// the last of them has closed it.
func handOver(lease *os.File) error {
	// Not Fd, which would make reads block for ever that have a deadline.
	raw, err := lease.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) {
			// The new descriptor is not closed by execve(2).
			_, err = unix.FcntlInt(fd, unix.F_DUPFD, leaseDescriptor)
		})
		err = errors.Join(err, controlErr)
	}
	return errors.Join(err, lease.Close())
}

// end closes this descriptor of the lease, and removes what was written.
func (h *heldLease) end() {
	if h == nil {
		return
	}
	if h.client != nil {
		_ = h.client.Close()
	}
	if h.dir != "" {
		_ = os.RemoveAll(h.dir)
	}
}

// byID reports whether the lease is to be bound to a container.
func (h *heldLease) byID() bool { return h != nil && h.idFile != "" }

// options are those of the runtime by which the id of the container gets known.
func (h *heldLease) options() []string {
	if h == nil || h.dir == "" {
		return nil
	}
	return []string{"--cidfile", h.idFile}
}

// id is the id of the container; "" if it is not written yet.
func (h *heldLease) id() string {
	text, _ := os.ReadFile(h.idFile)
	return strings.TrimSpace(string(text))
}

// needsID reports whether the lease of a container must be bound to its id, because the
// container does not inherit it. The error names what no lease can follow.
func (j *Job) needsID() (bool, error) {
	args := j.Args
	if !j.startsContainer() {
		return false, nil
	}
	// What stands before it are options of the runtime itself.
	verb := max(0, slices.IndexFunc(args, func(arg string) bool { return arg == "run" || arg == "create" }))
	if args[verb] == "create" {
		return false, refuse("use run in place of create", "a container that is only created has no lease when it is started")
	}
	runtime := filepath.Base(args[0])
	if err := runsOnce(runtime, containerArgs(args)); err != nil {
		return false, err
	}
	switch {
	case runtime == "docker", runtime == "nerdctl":
		return true, nil
	case runtime == "podman" && !j.isRemote(args[:verb]):
		// It inherits the lease. With a time the arbiter has to know which container to end.
		return j.Limit > 0 && (slices.Contains(args, "{args}") || detaches(containerArgs(args)) != ""), nil
	default:
		if option := detaches(args); option != "" {
			return false, refuse("leave out "+option+", or start the container by podman, docker or nerdctl itself",
				"%s leaves the container behind, and no lease can follow it through %s", option, runtime)
		}
		return false, nil
	}
}

// containerArgs returns the arguments of a runtime up to the image, which is the first one
// after {args} or {} that is no option and no value of one. It may be taken for a value.
func containerArgs(args []string) []string {
	isOption := func(i int) bool { return i < len(args) && strings.HasPrefix(args[i], "-") }
	i := 1 + slices.IndexFunc(args, func(arg string) bool { return arg == "{args}" || arg == "{}" })
	for isOption(i) {
		if joined := strings.Contains(args[i], "="); !joined && i+1 < len(args) && !isOption(i+1) {
			i++
		}
		i++
	}
	return args[:i]
}

// runsOnce returns why a container may run again when it has ended, and its lease with
// it; nil if it runs once.
func runsOnce(runtime string, args []string) error {
	removed := runtime != "podman" // the daemon of others is asked by those who may do everything
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch {
		case name == "--restart" && value != "no" && value != "never":
			return refuse("leave out --restart, and let a unit of systemd start lpuctl run again",
				"--restart starts the container again when its lease has ended")
		case runtime == "podman" && (name == "--pod" || name == "--pod-id-file"):
			return refuse("leave out "+name, "a container of a pod is started again with the pod, and then has no lease")
		case name == "--rm":
			removed = removed || !joined || value == "true"
		}
	}
	if !removed {
		return refuse("add --rm", "without --rm the container stays when it has ended, and podman start runs it again without a lease")
	}
	return nil
}

// bindLimited has the lease of a container be bound to its id that inherits the lease, if
// an administrator limits its time.
func (j *Job) bindLimited(h *heldLease, until time.Duration) error {
	if h == nil || until == 0 || h.byID() {
		return nil
	}
	limited := *j
	limited.Limit = until
	if byID, err := limited.needsID(); err != nil || !byID {
		return err
	}
	return h.findID(j.Args)
}

// findID settles where the id of the container is written: where the user wants it or, if
// {args} leaves room for an option, where we want.
func (h *heldLease) findID(args []string) (err error) {
	for i, arg := range args {
		file, isOption := strings.CutPrefix(arg, "--cidfile")
		switch {
		case !isOption:
			continue
		case file == "" && i+1 < len(args):
			h.idFile = args[i+1]
			return nil
		case strings.HasPrefix(file, "="):
			h.idFile = file[1:]
			return nil
		}
	}
	if !slices.Contains(args[1:], "{args}") {
		return refuse("write {args} in place of --device {}",
			"a container of %s outlives the command, and with {} alone its id would not be known", filepath.Base(args[0]))
	}
	if h.dir, err = os.MkdirTemp("", "lpuctl-run-"); err == nil {
		h.idFile = filepath.Join(h.dir, "id")
	}
	return err
}

// isRemote reports whether podman only asks a service, which starts the container.
func (j *Job) isRemote(options []string) bool {
	if service, _ := j.Env("CONTAINER_HOST"); service != "" {
		return true
	}
	return slices.ContainsFunc(options, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--remote", "-r", "--url", "--connection", "-c"}, name)
	})
}

// detaches is the option by which a container is left behind; "" if there is none. Short
// options may stand together: -dit.
func detaches(args []string) string {
	for _, arg := range args[1:] {
		short := len(arg) > 1 && arg[0] == '-' && arg[1] != '-'
		if arg == "--detach" || arg == "--detach=true" || short && strings.Contains(strings.SplitN(arg, "=", 2)[0], "d") {
			return arg
		}
	}
	return ""
}

// bindEvery is how often it is tried to bind a lease: the id is written before the
// container runs.
const bindEvery = 100 * time.Millisecond

// bound runs a command, and binds the lease to the container that it starts, if it has to
// be, as soon as that runs.
func (h *heldLease) bound(run func(ended <-chan string) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan string, 1)
	if !h.byID() {
		if h != nil {
			go h.hear(ctx, ended)
		}
		return run(ended)
	}
	done := make(chan error, 1)
	go func() {
		err := h.keepBinding(ctx)
		done <- err
		if err == nil {
			h.hear(ctx, ended)
		}
	}()
	result := run(ended)
	cancel()
	container := h.id()
	if err := <-done; err == nil || container == "" {
		return result
	}
	// The command has left the container behind just now, or both have ended, which the
	// arbiter refuses to bind.
	err := h.client.Bind(context.Background(), container)
	r, refused := errors.AsType[*lease.Refusal](err)
	if err != nil && (!refused || r.ID != finding.LeaseNoContainer) {
		return refuse("stop the container, if it still runs: "+container, "its lease is lost: %w", err)
	}
	return result
}

// keepBinding tries to bind a lease to a container until it is bound, or ctx ends.
func (h *heldLease) keepBinding(ctx context.Context) error {
	tick := time.NewTicker(bindEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		// An answer is always waited for: else the next request would get it.
		if container := h.id(); container != "" && h.client.Bind(context.Background(), container) == nil {
			return nil
		}
	}
}

// leasedNames are the names that leased LPUs have in an inventory, in the same order.
func leasedNames(inv *discovery.Inventory, leased []lease.LPU) (names []string, err error) {
	for _, of := range leased {
		i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address == of.Address && !l.Absent })
		if i < 0 {
			return nil, refuse("try again", "the LPU at %s was leased, and has left the bus since", of.Address)
		}
		names = append(names, inv.LPUs[i].Name)
	}
	return names, nil
}

// lease asks the arbiter for LPUs, and waits for them if that is wished.
func (j *Job) lease(ctx context.Context, client *lease.Client) (*grant, error) {
	inv, err := j.Scan(ctx)
	if err := cmp.Or(err, nested(inv)); err != nil {
		return nil, err
	}
	selection, err := j.Select(inv)
	if err != nil {
		return nil, err
	}
	w := lease.Wish{Selection: selection, For: j.Limit, Wait: j.Wait > 0, DryRun: j.DryRun, Command: shortened(j.Args[0])}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The timer runs from the first answer. Before, no program knows what is waited for.
	var timer *time.Timer
	said := ""
	var granted *lease.Grant
	err = lease.Patiently(ctx, max(j.Wait, lease.Patience), func() (err error) {
		granted, err = client.Wish(ctx, w, func(p lease.Place) {
			if timer == nil {
				timer = time.AfterFunc(j.Wait, func() { end(errWaited) })
			}
			hint := ""
			if said == "" {
				hint = "; lpuctl queue shows who waits"
			}
			said = p.Why
			j.Say("waiting, place %d of %d: %s%s", p.Place, p.Of, p.Why, hint)
		})
		return err
	})
	if timer != nil {
		timer.Stop()
	}
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errWaited):
		return nil, refuse("wait longer, or ask for fewer", "waited %v: %s", j.Wait, said)
	case err != nil:
		return nil, err
	case granted.UsersHidden:
		j.Say("warning: the arbiter cannot see all processes: somebody may use an LPU without a lease")
	}
	if j.Wait > 0 { // the machine may have changed meanwhile
		if inv, err = j.Scan(ctx); err != nil {
			return nil, err
		}
	}
	names, err := leasedNames(inv, granted.LPUs)
	if err == nil && !j.DryRun {
		j.Say("leased %s as %s until %s: lpuctl list shows it", strings.Join(names, " "), granted.ID, endText(granted.Until))
	}
	return &grant{inv: inv, lpus: names, connected: granted.Connected, until: granted.Until}, err
}

var errWaited = errors.New("waited long enough")

// shortened is the name of a program as far as the arbiter takes it.
func shortened(command string) string {
	name := shell.Printable(path.Base(command))
	if lease.CheckReason(name) != nil {
		return ""
	}
	return fmt.Sprintf("%.60s", name)
}
