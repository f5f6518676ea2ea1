package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

func newAllocateCommand(a *app) *cobra.Command {
	var f format
	var replay string
	w := wish{size: 1}
	cmd := &cobra.Command{
		Use:   "allocate",
		Short: "Tell which LPUs a workload should take, and why",
		Long: `allocate picks LPUs that are free and connected, in such a way that those who come next find connected LPUs too,
and says which CDI device hands them out. It reserves nothing. Free is what is usable and held open by nobody
(run as root to see everybody's processes); --available names the free LPUs yourself.

The exit code is 3 if there are not enough free LPUs or, with --require-connected, no connected set.
How the choice is made: docs/allocation.md.`,
		Example: `  lpuctl allocate -n 4
  lpuctl allocate -n 2 -o wide                    # every candidate, best first
  podman run --device "$(lpuctl allocate -n 4 -o name)" IMAGE
  lpuctl allocate -n 4 --available 0,1,4,5,6,7    # what if only these were free?
  lpuctl allocate -n 2 --must-include lpu3 --require-connected -o json
  lpuctl allocate --replay serve.log              # would today's rule and ring decide the same?`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if replay == "" {
				return a.allocate(cmd.Context(), w, f)
			}
			for _, other := range []string{"count", "available", "must-include", "require-connected"} {
				if cmd.Flags().Changed(other) {
					return usage("--replay takes what was logged: leave out --%s", other)
				}
			}
			return a.replay(cmd.Context(), replay, f)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&w.size, "count", "n", w.size, "`NUMBER` of LPUs")
	flags.StringSliceVar(&w.available, "available", nil, "take these `LPUS` for the free ones, by name, index or PCI address (default: those that are usable and used by nobody)")
	flags.StringSliceVar(&w.must, "must-include", nil, "`LPUS` that have to be among them")
	flags.StringVar(&replay, "replay", "", "make the decisions that lpuctl serve logged (as JSON) to `FILE` again, and compare")
	flags.BoolVar(&w.connected, "require-connected", false, "exit 3 rather than name LPUs that are not connected")
	a.ringTableFlag(cmd)
	complete(cmd, "count")
	for _, flag := range []string{"available", "must-include"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, a.completeLPUList)
	}
	formatFlag(cmd, &f, formatTable, formatWide, formatJSON, formatYAML, formatName)
	return cmd
}

// wish is what allocate is asked for.
type wish struct {
	size            int
	available, must []string
	connected       bool
}

// allocation is the document that allocate prints.
type allocation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	discovery.Decision
	Device string `json:"device,omitempty"` // qualified CDI name of exactly these LPUs
}

func (a *app) allocate(ctx context.Context, w wish, f format) error {
	if w.size < 1 {
		return usage("-n %d: at least one LPU", w.size)
	}
	inv, err := a.scan(ctx, discovery.Options{})
	if err != nil {
		return err
	}
	if len(inv.LPUs) == 0 {
		return a.refuse(inv.NoDecision(nil, nil, w.size), f, noLPU(a.root))
	}
	free, err := a.freeLPUs(ctx, inv, w)
	if err != nil {
		return err
	}
	a.report(inv.Problems)
	must, err := withNodes(inv, w.must)
	if err != nil {
		return err
	}
	if err := possible(inv, free, must, w.size); err != nil {
		return a.refuse(inv.NoDecision(free, must, w.size), f, err)
	}
	fabric := inv.Fabric()
	decision, err := inv.Decide(fabric, free, must, w.size)
	if err != nil {
		return err
	}
	if w.connected && w.size > 1 {
		if err := notConnected(decision, inv.ArcsOf(fabric, free)); err != nil {
			return a.refuse(inv.NoDecision(free, must, w.size), f, err)
		}
	}
	result := newAllocation(decision)
	if name := cdi.NameOf(inv, decision.Chosen); name != "" {
		result.Device = a.config.CDI.Kind + "=" + name
	}
	return a.writeAllocation(result, f)
}

func newAllocation(d *discovery.Decision) *allocation {
	return &allocation{APIVersion: discovery.APIVersion, Kind: "Allocation", Decision: *d}
}

// notConnected says why LPUs that are connected cannot be had. free is the arcs that are free.
func notConnected(d *discovery.Decision, free [][]string) error {
	switch {
	case d.Connected == nil:
		return &exitError{code: exitFound, err: errors.New("it is not known which LPUs are connected: there is no ring table"),
			hint: "make one this node's with lpuctl ring install FILE, or leave out --require-connected"}
	case !*d.Connected:
		return &exitError{code: exitFound, err: fmt.Errorf("%d connected LPUs are not to be had: %s", d.Explanation.Size, d.Explanation.Reason),
			hint: "free are " + arcNames(free) + ": ask for fewer, or leave out --require-connected"}
	}
	return nil
}

// refuse ends with the reason why there is nothing to name; for programs that is a document too.
func (a *app) refuse(nothing *discovery.Decision, f format, why error) error {
	if f == formatJSON || f == formatYAML {
		nothing.Explanation.Reason = why.Error()
		if err := writeDocument(a.out, f, newAllocation(nothing)); err != nil {
			return err
		}
	}
	return why
}

// freeLPUs are those that were named, or else all that are usable and that nobody holds open.
func (a *app) freeLPUs(ctx context.Context, inv *discovery.Inventory, w wish) ([]int, error) {
	if w.available != nil {
		return withNodes(inv, w.available)
	}
	a.findUsers(ctx, inv)
	return inv.Free(), nil
}

// lpusNamed are the LPUs that people named, each once, as positions in the inventory in ascending order.
func lpusNamed(inv *discovery.Inventory, names []string) ([]int, error) {
	var cards []int
	for _, name := range names {
		l, err := inv.Find(strings.TrimSpace(name))
		if err != nil {
			return nil, &exitError{code: exitUsage, err: err, hint: "see lpuctl list"}
		}
		cards = append(cards, l.Index)
	}
	slices.Sort(cards)
	return slices.Compact(cards), nil
}

// withNodes is lpusNamed for LPUs that a container is to be given.
func withNodes(inv *discovery.Inventory, names []string) ([]int, error) {
	cards, err := lpusNamed(inv, names)
	for _, card := range cards {
		if l := inv.LPUs[card]; len(l.Nodes) == 0 {
			return nil, &exitError{code: exitFound, err: fmt.Errorf("%s cannot be had: it has no device node", l.Name), hint: "see lpuctl describe " + l.Name}
		}
	}
	return cards, err
}

// possible says why a wish cannot be fulfilled.
func possible(inv *discovery.Inventory, free, must []int, size int) error {
	for _, card := range must {
		if !slices.Contains(free, card) {
			return &exitError{code: exitFound, err: fmt.Errorf("%s must be included and is not free", inv.LPUs[card].Name), hint: "see lpuctl list for who uses it"}
		}
	}
	if len(must) > size {
		return usage("%d LPUs must be included, and -n is %d", len(must), size)
	}
	if size <= len(free) {
		return nil
	}
	e := &exitError{code: exitFound, err: fmt.Errorf("%s asked for, %d of %d free", plural(size, "LPU"), len(free), len(inv.LPUs)), hint: "see lpuctl list for who uses the others"}
	if size > len(inv.LPUs) {
		e.err, e.hint = fmt.Errorf("%s asked for, this node has %d", plural(size, "LPU"), len(inv.LPUs)), "ask for fewer"
	}
	return e
}

func (a *app) writeAllocation(r *allocation, f format) error {
	switch f {
	case formatJSON, formatYAML:
		return writeDocument(a.out, f, r)
	case formatName:
		if r.Device == "" {
			return &exitError{code: exitFound, err: errors.New("no one device of the spec stands for " + strings.Join(r.LPUs, " ")),
				hint: "use -o json, and give the container the device pci-... of each (lpuctl cdi list)"}
		}
		_, err := fmt.Fprintln(a.out, r.Device)
		return err
	case formatWide:
		if err := a.writeCandidates(r); err != nil {
			return err
		}
	}
	return writeTable(a.out, nil, [][]string{
		{"LPUs", strings.Join(r.LPUs, " ")},
		{"Connected", connectedText(r.Connected)},
		{"CDI device", r.Device},
		{"Free after", arcNames(r.FreeAfter)},
		{"Why", r.Explanation.Reason},
	})
}

// writeCandidates shows what was weighed, in the words of the criteria.
func (a *app) writeCandidates(r *allocation) error {
	if len(r.Explanation.Candidates) == 0 {
		return nil
	}
	var rows [][]string
	for _, c := range r.Explanation.Candidates {
		broken := 0
		for _, n := range c.Broken {
			broken += n
		}
		rows = append(rows, []string{
			strings.Join(c.LPUs, " "), numbers(c.FreeAfter), strconv.Itoa(c.RingFree), yesNo(c.Wraps), strconv.Itoa(c.Pairs), strconv.Itoa(broken),
			strconv.Itoa(c.NUMANodes), strconv.Itoa(c.Switches), string(c.LostBy),
		})
	}
	err := writeTable(a.out, []string{"CANDIDATE", "FREE-ARCS-AFTER", "RING-FREE", "WRAPS", "PAIRS", "BROKEN-BLOCKS", "NUMA", "SWITCHES", "WHY-NOT"}, rows)
	fmt.Fprintln(a.out)
	return err
}

func connectedText(connected *bool) string {
	if connected == nil {
		return "not known: no ring table"
	}
	return yesNo(*connected)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func numbers(list []int) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

func arcNames(arcs [][]string) string {
	texts := make([]string, len(arcs))
	for i, arc := range arcs {
		texts[i] = strings.Join(arc, " ")
	}
	return strings.Join(texts, ", ")
}
