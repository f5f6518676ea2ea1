package main

import (
	"context"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

const runName = "run"

// runOptions are the options that a user gives run before the command.
type runOptions struct {
	wish
	launch.Options

	format cli.Format
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
the same time may get the same LPUs, and an ordinary user does not see which LPUs others use. With --for a lease has an end, and where
the administrator has set leases.backfill it may go before others who wait, if it ends before they can start.

The exit code is that of COMMAND, 128 and the number of the signal that ended it, 127 if there is no such command, 126 if it cannot be
executed, and 125 if run fails before. Signals are passed on to COMMAND.`,
		Example: `  lpuctl run -n 4 -- podman run --rm {args} IMAGE
  lpuctl run -n 1 -- docker run --rm {args} IMAGE
  lpuctl run -n 2 --same-switch --wait=1h -- python3 serve.py
  lpuctl run -n 1 --wait --for 20m -- ./test         # short, and so before others where leases.backfill is set
  lpuctl run -n 4 --no-lease -- ./benchmark          # where no lease can be had
  lpuctl run -n 4 --dry-run -- podman run --rm {args} IMAGE`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := time.ParseDuration(args[0]); err == nil && cmd.Flags().Changed("wait") {
				return cli.Usage("no command %s: is it the time to wait? Write --wait=%[1]s", args[0])
			}
			if cmd.Flags().Changed("format") && !o.DryRun {
				return cli.Usage("-o is the format of --dry-run")
			}
			o.MemlockGiven = cmd.Flags().Changed("memlock")
			return o.job(a, args).Run(cmd.Context())
		},
	}
	o.flags(a, cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.Func("wait", "wait until there are such LPUs, at most for `TIME`, such as 90s or 2h", func(text string) error {
		if text == forever {
			o.Wait = math.MaxInt64
			return nil
		}
		return positiveTime(&o.Wait)(text)
	})
	flags.Lookup("wait").NoOptDefVal = forever
	flags.Func("for", "end COMMAND after `TIME`: SIGTERM, and SIGKILL "+launch.Grace.String()+" later", positiveTime(&o.Limit))
	o.Memlock = launch.MemlockDefault
	flags.Var((*size)(&o.Memlock), "memlock", "memory that COMMAND needs to lock (`SIZE`): allow it where run can, else warn; 0: neither")
	flags.BoolVar(&o.NoLease, "no-lease", false, "do not ask for a lease")
	flags.BoolVar(&o.NoIsolation, "no-isolation", false, "let a plain program open the nodes of all LPUs")
	flags.BoolVar(&o.DryRun, "dry-run", false, "show the LPUs and the command, and start nothing")
	for _, flag := range []string{"wait", "for", "memlock"} {
		cli.Complete(cmd, flag)
	}
	a.FormatFlag(cmd, &o.format)
	return cmd
}

// job is the command with these options.
func (o *runOptions) job(a *app, args []string) *launch.Job {
	j := &launch.Job{Options: o.Options, Args: args, Environ: os.Environ()}
	prepared := func(inv *discovery.Inventory, err error) (*discovery.Inventory, error) {
		if err == nil {
			j.Site, err = a.site()
		}
		return inv, err
	}
	j.Root, j.Env, j.Say, j.Report = a.Root, a.Env, a.Say, a.Report
	j.Scan = func(ctx context.Context) (*discovery.Inventory, error) { return prepared(a.scan(ctx)) }
	j.Look = func(ctx context.Context) (inv *discovery.Inventory, w allocate.Wish, err error) {
		inv, w, err = o.scan(ctx, a)
		inv, err = prepared(inv, err)
		return inv, w, err
	}
	j.Select = func(inv *discovery.Inventory) (lease.Selection, error) { return o.selection(inv, a.Config.CDI.Kind) }
	j.Decide = func(inv *discovery.Inventory, w allocate.Wish) (*allocate.Decision, error) {
		return decide(&a.App, inv, w)
	}
	j.Show = func(plan *launch.Plan) error { return writePlan(&a.Terminal, plan, o.format) }
	return j
}

func writePlan(t *cli.Terminal, plan *launch.Plan, f cli.Format) error {
	if f.IsDocument() {
		return t.WriteDocument(f, plan)
	}
	isolation := ""
	if plan.Isolated {
		isolation = "without " + cli.Plural(len(plan.Hidden), "node") + " of other LPUs"
	}
	return t.WriteTable(nil, [][]string{
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
func (v *size) String() string { return strings.ReplaceAll(launch.SizeText(uint64(*v)), " ", "") }
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
