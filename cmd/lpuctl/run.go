package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const runName = "run"

// runOptions are the options that a user gives run before the command.
type runOptions struct {
	wish
	wait         time.Duration // how long to wait for LPUs; 0: not at all
	limit        time.Duration // how long the command may run; 0: for ever
	memlock      uint64        // bytes that the command should be able to lock
	memlockGiven bool          // --memlock was given
	noLease      bool
	noIsolation  bool
	dryRun       bool
	format       cli.Format
}

func newRunCommand(a *app) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   runName + " -n NUMBER -- COMMAND [ARG...]",
		Short: "Run a command with LPUs of its own",
		Long: `run chooses LPUs as allocate does, among those that are usable, not cordoned and in use by nobody, and starts COMMAND with them.

An argument of COMMAND that is {args} becomes the options by which podman, nerdctl and docker give a container the LPUs, and one that is
{} becomes the one CDI device that covers them, if there is one. Without either COMMAND is a plain program: it gets the variables
that a container would get, and cannot open the nodes of other LPUs, because it runs in a mount namespace without them. So it may take
every LPU that it finds. --no-isolation leaves the nodes as they are, and COMMAND has to keep to LPU_VISIBLE_DEVICES.

A lease, which lpuctl-lease.socket hands out, keeps others from being given the same LPUs. --no-lease does without: then two that start at
the same time may get the same LPUs, and an ordinary user does not see which LPUs others use.

The exit code is that of COMMAND, 128 and the number of the signal that ended it, 127 if there is no such command, 126 if it cannot be
executed, and 125 if run fails before. Signals are passed on to COMMAND.`,
		Example: `  lpuctl run -n 4 -- podman run --rm {args} IMAGE
  lpuctl run -n 1 -- docker run --rm {args} IMAGE
  lpuctl run -n 2 --same-switch --wait=1h -- python3 serve.py
  lpuctl run -n 4 --no-lease -- ./benchmark          # where no lease can be had
  lpuctl run -n 4 --dry-run -- podman run {args} IMAGE`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := time.ParseDuration(args[0]); err == nil && cmd.Flags().Changed("wait") {
				return cli.Usage("no command %s: is it the time to wait? Write --wait=%[1]s", args[0])
			}
			if cmd.Flags().Changed("format") && !o.dryRun {
				return cli.Usage("-o is the format of --dry-run")
			}
			o.memlockGiven = cmd.Flags().Changed("memlock")
			err := a.runCommand(cmd.Context(), o, args)
			if cmd.Context().Err() != nil && !errors.As(err, new(ended)) {
				return interrupted(cmd.Context())
			}
			return err
		},
	}
	a.wishFlags(cmd, &o.wish)
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.Func("wait", "wait until there are such LPUs, at most for `TIME`, such as 90s or 2h", func(text string) error {
		if text == forever {
			o.wait = math.MaxInt64
			return nil
		}
		return positiveTime(&o.wait)(text)
	})
	flags.Lookup("wait").NoOptDefVal = forever
	flags.Func("for", "end COMMAND after `TIME`: SIGTERM, and SIGKILL "+grace.String()+" later", positiveTime(&o.limit))
	o.memlock = memlockDefault
	flags.Var((*size)(&o.memlock), "memlock", "memory that COMMAND needs to lock (`SIZE`): allow it where run can, else warn; 0: neither")
	flags.BoolVar(&o.noLease, "no-lease", false, "do not ask for a lease")
	flags.BoolVar(&o.noIsolation, "no-isolation", false, "let a plain program open the nodes of all LPUs")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show the LPUs and the command, and start nothing")
	for _, flag := range []string{"wait", "for", "memlock"} {
		cli.Complete(cmd, flag)
	}
	a.FormatFlag(cmd, &o.format)
	return cmd
}

// interrupted is the end by a signal before anything was started.
func interrupted(ctx context.Context) error {
	if strings.HasPrefix(context.Cause(ctx).Error(), unix.SIGTERM.String()) {
		return ended(exitSignal + unix.SIGTERM)
	}
	return ended(exitSignal + unix.SIGINT)
}

// grant is the LPUs that a command gets.
type grant struct {
	inv       *discovery.Inventory
	lpus      []string      // names in ring order
	connected *bool         // as in allocate.Decision
	until     time.Duration // when the time of the lease is over, since boot; 0: never
}

// jobPlan is what run does, and the document of --dry-run.
type jobPlan struct {
	cli.Header
	LPUs      []string `json:"lpus"` // in ring order
	Connected *bool    `json:"connected,omitempty"`
	Device    string   `json:"device,omitempty"` // qualified CDI name of exactly these LPUs
	Isolated  bool     `json:"isolated"`
	Hidden    []string `json:"hidden"` // nodes that the command cannot open
	Env       []string `json:"env"`    // variables that a plain program gets
	Command   []string `json:"command"`

	dev    string // where the nodes are
	covers []isolate.Cover
}

func (a *app) runCommand(ctx context.Context, o runOptions, args []string) error {
	image := askImage(args) // before there is a lease that the runtime could inherit
	held, err := a.hold(o, args)
	if err != nil {
		return err
	}
	defer held.end()
	start, err := a.starter(o, args)
	if err != nil {
		return err
	}
	g, err := a.grant(ctx, held, o, args[0])
	if err != nil {
		return err
	}
	plan, err := a.plan(o, args, g, held, image)
	if err != nil {
		return err
	}
	if o.dryRun {
		return a.writePlan(plan, o.format)
	}
	path, err := find(args[0])
	if err != nil {
		return err
	}
	p := &isolate.Program{
		Path: path, Args: plan.Command, Env: withVariables(os.Environ(), plan.Env), Isolated: plan.Isolated, Dev: plan.dev, Hidden: plan.Hidden,
		Covers: plan.covers,
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	limit := o.limit
	if g.until > 0 { // perhaps earlier than was asked for: what a user may have is limited
		limit = max(g.until-host.SinceBoot(), time.Nanosecond)
	}
	if limit == 0 && !held.byID() && !p.NeedsChild() {
		signal.Reset() // what was ignored before is ignored by the command too
		return p.Exec()
	}
	return a.bound(held, func() error { return a.supervise(func() (int, error) { return start(p) }, limit) })
}

// starter settles what the command inherits, and returns how it is started as a child. An
// isolated one is prepared while LPUs are chosen, unless it has to wait for them.
func (a *app) starter(o runOptions, args []string) (func(*isolate.Program) (pid int, err error), error) {
	if o.dryRun {
		return nil, nil
	}
	if err := a.raiseMemlock(o.memlock, args); err != nil {
		return nil, err
	}
	if p := (isolate.Program{Isolated: o.isolates(args)}); o.wait > 0 || !p.NeedsChild() {
		return (*isolate.Program).Start, nil
	}
	child, err := isolate.Prepare()
	if err != nil {
		return nil, err
	}
	return child.Start, nil
}

// pollEvery is how often run looks for free LPUs that it waits for without a lease.
const pollEvery = 2 * time.Second

// grant gets LPUs from the arbiter or, without one, chooses them as allocate does. Then,
// if it is to wait, it looks again and again, until there are some.
func (a *app) grant(ctx context.Context, held *heldLease, o runOptions, command string) (*grant, error) {
	if held != nil {
		return a.lease(ctx, held.client, o, command)
	}
	var end time.Time
	for told := ""; ; {
		inv, wish, err := a.scanFor(ctx, o.wish)
		if err != nil {
			return nil, err
		}
		decision, refused := a.decide(inv, wish)
		if refused == nil {
			a.Report(inv.Problems)
			return &grant{inv: inv, lpus: decision.LPUs, connected: decision.Connected}, nil
		}
		if end.IsZero() {
			end = time.Now().Add(o.wait)
		}
		if o.wait == 0 || time.Now().After(end) || !possible(inv, wish) {
			a.Report(inv.Problems)
			return nil, refused
		}
		if why := refused.Error(); why != told {
			a.Say("waiting: %s", why)
			told = why
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(pollEvery, time.Until(end))):
		}
	}
}

// possible reports whether a wish could be fulfilled if all LPUs were free and healthy.
func possible(inv *discovery.Inventory, w allocate.Wish) bool {
	w.Free = nil
	for card := range inv.LPUs {
		w.Free = append(w.Free, card)
	}
	_, err := allocate.Decide(inv, inv.Cabled(), w)
	return err == nil && len(inv.LPUs) > 0
}

// isolates reports whether the command cannot open the nodes of other LPUs. A container
// sees its own by itself.
func (o runOptions) isolates(args []string) bool { return !o.noIsolation && !startsContainer(args) }

// plan says what is to be executed, how, and with which variables.
func (a *app) plan(o runOptions, args []string, g *grant, held *heldLease, image imageEnv) (*jobPlan, error) {
	e, err := a.explain(g.inv, g.lpus)
	if err != nil {
		return nil, err
	}
	plan := &jobPlan{Header: cli.NewHeader("Run"), LPUs: g.lpus, Connected: g.connected, Hidden: []string{}, Env: []string{}}
	if len(e.Use) == 1 && len(e.UseEnv) == 0 {
		plan.Device = e.Use[0]
	}
	if startsContainer(args) {
		err := plan.replace(args, a.containerOptions(o, args, g, held, image, e))
		return plan, err
	}
	plan.Command = args
	used, err := cdi.Explain(g.inv, cdi.Options{Kind: a.Config.CDI.Kind}, e.Use)
	if err != nil {
		return nil, err
	}
	plan.Env = a.variables(used.Env, e.UseEnv)
	if !o.isolates(args) {
		return plan, nil
	}
	plan.Isolated = true
	plan.covers = a.coverTable(cmp.Or(e.UseTable, used.Table))
	return plan, hideOthers(a.Root, g, plan)
}

// coverTable makes an isolated program read the ring table of its LPUs, where the host
// has one: the program sees no others, and so counts them as in a container.
func (a *app) coverTable(t *cdi.RingTable) []isolate.Cover {
	if t == nil || !a.Root.Exists(t.ContainerPath) {
		return nil
	}
	file, err := a.putTable(t)
	path, pathErr := absolute(a.Root, t.ContainerPath)
	if err = cmp.Or(err, pathErr); err != nil {
		a.Log.Warn("the command reads the host's ring table, which counts LPUs in another way", "error", err)
		return nil
	}
	return []isolate.Cover{{File: file, Path: path}}
}

// replace makes the command of arguments in which some stand for the options of a
// runtime, or for the device.
func (plan *jobPlan) replace(args, options []string) error {
	for i, arg := range args {
		switch {
		case i == 0 || arg != "{args}" && arg != "{}":
			plan.Command = append(plan.Command, arg)
		case arg == "{args}":
			plan.Command = append(plan.Command, options...)
		case plan.Device == "":
			return cli.Fail(exitNotStarted, "write {args} in place of it, and of the option before it", "no single CDI device covers %s for {}",
				strings.Join(plan.LPUs, " "))
		default:
			plan.Command = append(plan.Command, plan.Device)
		}
	}
	return nil
}

// variables are those that a container gets, as NAME=VALUE. A LD_LIBRARY_PATH that is set
// already stays.
func (a *app) variables(used, more []cdi.Variable) []string {
	list := []string{}
	for _, v := range slices.Concat(used, more) {
		if _, set := a.Env(v.Name); !set || v.Name != libraryPath {
			list = append(list, v.String())
		}
	}
	return list
}

// withVariables is an environment with some variables set again.
func withVariables(environment, variables []string) []string {
	for _, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		environment = slices.DeleteFunc(environment, func(have string) bool { return strings.HasPrefix(have, name+"=") })
	}
	return append(environment, variables...)
}

// hideOthers finds the nodes of all LPUs that the command does not get, and of their
// management functions: by the kernel's numbers, whatever they are named, and by the
// names that are known.
func hideOthers(root host.Root, g *grant, plan *jobPlan) error {
	functions := map[pci.Address]bool{}
	var known []discovery.Node
	for _, l := range g.inv.LPUs {
		if slices.Contains(g.lpus, l.Name) {
			continue
		}
		functions[l.Address] = true
		known = append(known, l.Nodes...)
		if l.Management != nil {
			functions[l.Management.Address] = true
		}
	}
	numbers, err := discovery.DeviceNumbers(string(root), functions)
	if err != nil {
		return err
	}
	if plan.dev, err = absolute(root, "/dev"); err != nil {
		return err
	}
	hidden, err := isolate.Nodes(plan.dev, numbers)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range known {
		if path, err := absolute(root, n.Path); err == nil && root.Exists(n.Path) && !slices.Contains(hidden, path) {
			hidden = append(hidden, path)
		}
	}
	plan.Hidden = cli.EmptyNotNull(hidden)
	return nil
}

// absolute is where a path of the root really is on this machine.
func absolute(root host.Root, p string) (string, error) {
	real, err := root.Resolve(p)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}

// find is the executable file of a command, as a shell finds it.
func find(command string) (string, error) {
	path, err := exec.LookPath(command)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, exec.ErrNotFound) {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if st, statErr := os.Stat(filepath.Join(dir, command)); statErr == nil && st.Mode().IsRegular() {
				err = fs.ErrPermission
			}
		}
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return "", &isolate.ExecError{Path: command, Err: err}
}

func (a *app) writePlan(plan *jobPlan, f cli.Format) error {
	if f.IsDocument() {
		return a.WriteDocument(f, plan)
	}
	isolation := ""
	if plan.Isolated {
		isolation = "without " + cli.Plural(len(plan.Hidden), "node") + " of other LPUs"
	}
	return a.WriteTable(nil, [][]string{
		{"LPUs", strings.Join(plan.LPUs, " ")},
		{"Connected", connectedText(plan.Connected)},
		{"CDI device", plan.Device},
		{"Isolation", isolation},
		{"Variables", shell.Quoted(plan.Env...)},
		{"Command", shell.Quoted(plan.Command...)},
	})
}

// forever is the value of --wait if none is given.
const forever = "forever"

// positiveTime reads the value of a flag.
func positiveTime(into *time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return errors.New("expected a time such as 90s, 30m or 2h")
		}
		*into = d
		return nil
	}
}

// size is the value of a flag: a number of bytes.
type size uint64

func (v *size) Type() string   { return "SIZE" }
func (v *size) String() string { return strings.ReplaceAll(sizeText(uint64(*v)), " ", "") }
func (v *size) Set(text string) error {
	number := strings.TrimRight(strings.ToLower(text), "ib")
	shift := 0
	if i := strings.IndexAny(number, "kmgt"); i >= 0 && i == len(number)-1 {
		shift, number = 10*(1+strings.IndexByte("kmgt", number[i])), number[:i]
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n<<shift>>shift != n {
		return errors.New("expected a number of bytes, such as 64MiB or 1g")
	}
	*v = size(n << shift)
	return nil
}

// sizeText is a number of bytes for people.
func sizeText(n uint64) string {
	unit, units := "", []string{"KiB", "MiB", "GiB", "TiB"}
	for n > 0 && n%1024 == 0 && len(units) > 0 {
		n, unit, units = n/1024, " "+units[0], units[1:]
	}
	return fmt.Sprint(n, unit)
}
