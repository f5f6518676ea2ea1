package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newAllocateCommand(a *app) *cobra.Command {
	var f cli.Format
	var replay string
	var w wish
	cmd := &cobra.Command{
		Use:     "allocate",
		Aliases: []string{"alloc"},
		Short:   "Tell which LPUs a workload should take, and why",
		Long: `allocate picks LPUs that are free and connected, in such a way that those who come next find connected LPUs too,
and says which CDI device hands them out. It reserves nothing. Free is what is usable, not cordoned, and held open by no process
that can be seen. As an ordinary user you do not see the processes of others: then a warning says that an LPU may be in use
all the same. --available names the free LPUs yourself; those that are cordoned are left out all the same. Where Kubernetes hands out
the LPUs too, a warning says by which program.

The exit code is 3 if there are not enough free LPUs or, with --require-connected, no connected set. Then -o name and -o args
print nothing, and a container that is started with nothing has no LPU. So start it in a second step, after &&, as below.
-o args prints the options of podman, nerdctl and docker, for any set of LPUs; leave the variable without quotes there (in zsh: ${=d}).
How the choice is made: /usr/share/doc/lpuctl/allocation.md.`,
		Example: `  lpuctl allocate -n 4
  lpuctl allocate -n 2 -o wide                    # every candidate, best first
  d=$(lpuctl allocate -n 4 -o name) && podman run --device "$d" IMAGE
  d=$(lpuctl allocate -n 3 -o args) && podman run $d IMAGE
  lpuctl allocate -n 4 --available 0,1,4,5,6,7    # what if only these were free?
  lpuctl allocate -n 2 --must-include lpu3 --require-connected -o json
  lpuctl allocate --replay serve.log              # would today's rule and ring decide the same?`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if replay == "" {
				return w.allocate(cmd.Context(), a, f)
			}
			for _, other := range []string{"count", "available", "must-include", "require-connected", "numa", "same-switch", "same-socket"} {
				if cmd.Flags().Changed(other) {
					return cli.Usage("--replay takes what was logged: leave out --%s", other)
				}
			}
			return replayDecisions(cmd.Context(), a, replay, f)
		},
	}
	w.flags(a, cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&w.available, "available", nil,
		"take these `LPUS` for the free ones (default: those that are usable and used by nobody)")
	flags.StringVar(&replay, "replay", "", "make the decisions that lpuctl serve logged (as JSON) to `FILE` again, and compare")
	_ = cmd.RegisterFlagCompletionFunc("available", completeLPUList(a))
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatWide, cli.FormatJSON, cli.FormatYAML, cli.FormatName, cli.FormatArgs)
	return cmd
}

// flags are those that say which LPUs are wanted.
func (w *wish) flags(a *app, cmd *cobra.Command) {
	w.size = 1
	flags := cmd.Flags()
	flags.IntVarP(&w.size, "count", "n", w.size, "`NUMBER` of LPUs")
	flags.StringSliceVar(&w.must, "must-include", nil, "`LPUS` that have to be among them")
	flags.BoolVar(&w.connected, "require-connected", false, "rather none than LPUs that are not connected")
	at := func(p allocate.Place) error {
		if w.place.Near != allocate.Anywhere && w.place.String() != p.String() {
			return errors.New("one of --numa, --same-switch and --same-socket is enough")
		}
		w.place = p
		return nil
	}
	flags.Func("numa", "only LPUs of the NUMA node with this `NUMBER`", func(text string) error {
		number, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return errors.New("expected a whole number")
		}
		node := int(number)
		return at(allocate.Place{Near: allocate.SameNUMA, NUMANode: &node})
	})
	flags.BoolFunc("same-switch", "all of them behind one PCIe switch",
		func(string) error { return at(allocate.Place{Near: allocate.SameSwitch}) })
	flags.BoolFunc("same-socket", "all of them on one socket (processor package)",
		func(string) error { return at(allocate.Place{Near: allocate.SameSocket}) })
	a.RingTableFlag(cmd)
	cli.Complete(cmd, "count")
	cli.Complete(cmd, "numa")
	_ = cmd.RegisterFlagCompletionFunc("must-include", completeLPUList(a))
}

// wish is what allocate is asked for, as it was typed.
type wish struct {
	size            int
	available, must []string
	connected       bool
	place           allocate.Place
}

// allocation is the document that allocate prints.
type allocation struct {
	cli.Header
	allocate.Decision
	Device string `json:"device,omitempty"` // qualified CDI name of exactly these LPUs
}

// allocate shows which LPUs the wish would get.
func (w *wish) allocate(ctx context.Context, a *app, f cli.Format) error {
	inv, wish, err := w.scan(ctx, a)
	if err != nil {
		return err
	}
	a.Report(inv.Problems)
	decision, refused := decide(&a.App, inv, wish)
	if decision == nil {
		return refused
	}
	result := &allocation{Header: cli.NewHeader("Allocation"), Decision: *decision}
	if beside := withID(inv.Problems, finding.BesideKubernetes); len(beside) > 0 {
		result.Explanation.Kubernetes = beside[0].Message
	}
	if name := cdi.NameOf(inv, decision.Chosen); refused == nil && name != "" {
		result.Device = a.Config.CDI.Kind + "=" + name
	}
	switch {
	case refused == nil && f == cli.FormatArgs:
		err = writeArguments(ctx, a, inv, decision.LPUs)
	case refused == nil || f.IsDocument():
		if f == cli.FormatName && result.Device != "" {
			warnUnserved(ctx, a, inv, result.Device)
		}
		err = result.write(&a.Terminal, f)
	}
	return cmp.Or(err, refused)
}

// scan scans the node and finds out which LPUs the wish means and which are free.
func (w *wish) scan(ctx context.Context, a *app) (*discovery.Inventory, allocate.Wish, error) {
	if w.size < 1 {
		return nil, allocate.Wish{}, cli.Usage("-n %d: at least one LPU", w.size)
	}
	inv, err := a.scan(ctx)
	if err != nil {
		return nil, allocate.Wish{}, err
	}
	wish, err := w.resolve(ctx, a.Root, a.Config.CDI.Kind, inv)
	addKubernetes(a, inv)
	for i := range inv.Problems {
		if p := &inv.Problems[i]; p.ID == finding.UsersHidden {
			p.Severity = finding.Warning // a note in list, but here an LPU that is in use may be given away
		}
	}
	return inv, wish, err
}

// addKubernetes adds that Kubernetes hands out the LPUs of this node too, or that this
// user cannot see that.
func addKubernetes(a *app, inv *discovery.Inventory) {
	memory, err := node.RememberIn(a.Root)
	if err != nil || len(inv.LPUs) == 0 {
		return
	}
	of, err := a.Pods(memory)
	if err != nil {
		return
	}
	now := of.Owner().Stand()
	switch program, unseen := now.Program(); {
	case program == "" && unseen == nil:
	case program != "":
		inv.Problems.Add(finding.BesideKubernetes, besideSubject, now.Kubernetes()+
			": a pod may have an LPU that looks free, because it has not opened it yet, or be given it at any time", "")
	default:
		inv.Problems.Add(finding.BesideKubernetes, besideSubject, now.Kubernetes(), "run it as root")
		inv.Problems[len(inv.Problems)-1].Severity = finding.Note
	}
}

// besideSubject is what Kubernetes hands out too.
const besideSubject = "free LPUs"

// decide chooses LPUs. A decision that comes with an error is one to show all the same.
func decide(a *cli.App, inv *discovery.Inventory, w allocate.Wish) (*allocate.Decision, error) {
	decision, refused := allocate.Decide(inv, inv.Fabric(), w)
	switch {
	case decision == nil:
		return nil, refused
	case len(inv.LPUs) == 0:
		refused = cli.NoLPU(a.Root)
		decision.Explanation.Reason = refused.Error()
	case refused == nil:
		a.Report(cordonsOf(inv))
	}
	return decision, refused
}

// resolve finds the LPUs that were named. Free are those, or else all that are usable
// and that no process holds open.
func (w *wish) resolve(ctx context.Context, root host.Root, kind string, inv *discovery.Inventory) (allocate.Wish, error) {
	resolved := allocate.Wish{Size: w.size, Free: []int{}, Connected: w.connected, Place: w.place}
	if len(inv.LPUs) == 0 {
		return resolved, nil
	}
	if w.place.Near == allocate.SameSocket {
		resolved.Sockets = discovery.Sockets(string(root), inv)
	}
	var err error
	if w.available != nil {
		resolved.Free, err = withNodes(kind, inv, w.available)
		resolved.Free = slices.DeleteFunc(resolved.Free, func(card int) bool { return inv.LPUs[card].Cordoned != nil })
	} else {
		node.FindUsers(ctx, root, inv)
		resolved.Free = allocate.Free(inv)
	}
	if err == nil {
		resolved.Must, err = withNodes(kind, inv, w.must)
	}
	if err == nil && len(resolved.Must) > w.size {
		err = cli.Usage("%d LPUs must be included, and -n is %d", len(resolved.Must), w.size)
	}
	return resolved, err
}

// write prints it in a format.
func (r *allocation) write(t *cli.Terminal, f cli.Format) error {
	switch f {
	case cli.FormatJSON, cli.FormatYAML:
		return t.WriteDocument(f, r)
	case cli.FormatName:
		if r.Device == "" {
			names := strings.Join(r.LPUs, " ")
			return cli.Fail(cli.ExitFound, "use -o args", "no single CDI device covers %s", names)
		}
		return t.WriteLines(r.Device)
	case cli.FormatWide:
		if err := r.writeCandidates(t); err != nil {
			return err
		}
	}
	return t.WriteTable(nil, [][]string{
		{"LPUs", strings.Join(r.LPUs, " ")},
		{"Connected", connectedText(r.Connected)},
		{"CDI device", r.Device},
		{"Free after", allocate.Join(r.FreeAfter)},
		{"Why", r.Explanation.Reason},
	})
}

// writeArguments prints the options by which podman, nerdctl and docker give a container
// these LPUs.
func writeArguments(ctx context.Context, a *app, inv *discovery.Inventory, names []string) error {
	site, err := a.site()
	if err != nil {
		return err
	}
	e, err := site.Explain(inv, names)
	if err != nil {
		return err
	}
	warnUnserved(ctx, a, inv, e.Use...)
	return a.WriteLines(strings.Join(site.Arguments(e), " "))
}

// warnUnserved warns of devices, by qualified name, that no container gets by the specs
// in place, or that lead to other nodes.
func warnUnserved(ctx context.Context, a *app, inv *discovery.Inventory, devices ...string) {
	own, err := a.LocateSpec()
	if err == nil {
		v := specValidator(ctx, a, own, inv)
		v.Devices = devices
		var findings finding.List
		findings, err = v.Unserved(specDirs(a))
		a.Report(findings)
	}
	if err != nil {
		a.Log.Warn("it is not known whether a container can get what is printed", "error", err)
	}
}

// writeCandidates shows what was weighed, in the words of the criteria.
func (r *allocation) writeCandidates(t *cli.Terminal) error {
	if len(r.Explanation.Candidates) == 0 {
		return nil
	}
	rows := cli.Each(r.Explanation.Candidates, func(c allocate.Candidate) []string {
		return []string{
			strings.Join(c.LPUs, " "), numbers(c.FreeAfter), strconv.Itoa(c.RingFree), strconv.Itoa(c.Pairs), strconv.Itoa(c.Broken),
			cli.YesNo(c.Wraps), strconv.Itoa(c.NUMANodes), strconv.Itoa(c.Switches), c.LostBy,
		}
	})
	columns := []string{"CANDIDATE", "FREE-ARCS-AFTER", "RING-FREE", "PAIRS", "BROKEN-PAIRS", "WRAPS", "NUMA", "SWITCHES", "WHY-NOT"}
	err := t.WriteTable(columns, rows)
	fmt.Fprintln(t.Out)
	return err
}

func connectedText(connected *bool) string {
	if connected == nil {
		return "not known: no ring table"
	}
	return cli.YesNo(*connected)
}

func numbers(list []int) string {
	return strings.Join(cli.Each(list, strconv.Itoa), ",")
}
