package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/plan"
	"github.com/hyperaccel/lpuctl/internal/shell"
)

// planFlags are where the slices and claims of a plan come from.
type planFlags struct {
	slices, claims string
	sizes          []int
}

func newPlanCommand(a *app) *cobra.Command {
	var f cli.Format
	var from planFlags
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Tell which LPUs the scheduler would give a claim, or why it gives none",
		Long: `plan runs the allocator of the scheduler (Kubernetes 1.37 with its default feature gates) on the ResourceClaims,
ResourceClaimTemplates and Pods of FILE, which may have several documents; - is stdin. Pods come with their claims and templates, which
are in FILE too, and with extended resources, which become claims as the scheduler makes them. What one gets is taken for those after it.

It asks this node: the slices that lpuctl-dra would publish, without what prepared claims have. With --slices it asks a cluster instead:
the output of kubectl, as below. Without -A the claims of other namespaces would be missing, and what they have would look free.
FILE may have DeviceClasses. lpu, lpu-2, lpu-4 and lpu-8 are built in, as the Helm chart makes them; a dump that has classes replaces these.

plan looks at devices only: not at CPU, memory, labels or taints of nodes. Where several nodes fit, the scheduler's scores choose.
The exit code is 3 if something does not fit; then plan says what every device lacks: taints, LPUs that claims have, or free LPUs that are
not connected.`,
		Example: `  lpuctl-dra plan claim.yaml                              # would it fit on this node?
  kubectl get resourceslices,resourceclaims,deviceclasses -A -o json > cluster.json
  lpuctl-dra plan pod.yaml --slices cluster.json          # and in the cluster?
  kubectl create -f pod.yaml --dry-run=client -o yaml | lpuctl-dra plan - --slices cluster.json -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return from.plan(cmd, a, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from.slices, "slices", "", "take the ResourceSlices of this `FILE`, and its ResourceClaims, instead of this node")
	flags.StringVar(&from.claims, "claims", "", "take the ResourceClaims of this `FILE`: LPUs that they have are not free")
	sizesFlag(cmd, &from.sizes)
	cli.NodeNameFlag(cmd, &a.NodeName)
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f)
	return cmd
}

// planDocument is the document that plan prints.
type planDocument struct {
	cli.Header
	*plan.Plan
}

// plan prints where the wishes of a file would be placed.
func (from *planFlags) plan(cmd *cobra.Command, a *app, file string, f cli.Format) error {
	var in plan.Input
	data, err := readFile(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	faults := in.ReadWishes(nameOf(file), data)
	for _, dump := range []struct {
		file string
		read func(string, []byte) plan.Faults
	}{{from.slices, in.ReadCluster}, {from.claims, in.ReadClaims}} {
		if dump.file == "" {
			continue
		}
		if data, err = readFile(cmd.InOrStdin(), dump.file); err != nil {
			return err
		}
		faults = append(faults, dump.read(nameOf(dump.file), data)...)
	}
	if len(faults) > 0 {
		return faulty(&a.Terminal, faults)
	}
	if from.slices == "" {
		if err := addThisNode(cmd, a, &in, from.sizes); err != nil {
			return err
		}
	} else if !in.HasClaims() {
		a.Say("note: no ResourceClaim was given: every LPU is taken for a free one")
	}
	return planIt(cmd.Context(), &a.Terminal, &in, f)
}

func planIt(ctx context.Context, t *cli.Terminal, in *plan.Input, f cli.Format) error {
	p, err := in.Plan(ctx)
	if found, ok := errors.AsType[plan.Faults](err); ok {
		return faulty(t, found)
	} else if err != nil {
		return err
	}
	for _, w := range p.Warnings {
		fmt.Fprint(t.Err, shell.Printable(fmt.Sprintf("warning: %s\n  remedy: %s\n", w, w.Remedy)))
	}
	if err := writePlan(t, p, f); err != nil {
		return err
	}
	if !p.Fits() {
		return cli.Found()
	}
	return nil
}

// nameOf is what a file is called in messages.
func nameOf(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

func readFile(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// faulty reports all that is wrong with the files.
func faulty(t *cli.Terminal, faults plan.Faults) error {
	for _, f := range faults {
		t.Complain(cli.Fail(cli.ExitFailed, f.Remedy, "%w", f))
	}
	return &cli.ExitError{Code: cli.ExitFailed}
}

// addThisNode adds what this node would publish, and what its prepared claims have.
func addThisNode(cmd *cobra.Command, a *app, in *plan.Input, sizes []int) error {
	inv, options, err := publishable(cmd, a, sizes)
	if err != nil {
		return err
	}
	in.AddSlices(options.Node, dra.Slices(inv, options))
	claims, problems, err := preparedClaims(cmd.Context(), a)
	if err != nil {
		return err
	}
	a.Report(problems)
	for _, c := range claims {
		for _, r := range c.Requests {
			for _, d := range r.Devices {
				in.AddUse(c.Namespace+"/"+c.Name, options.Node, d.Name)
			}
		}
	}
	return nil
}

func writePlan(t *cli.Terminal, p *plan.Plan, f cli.Format) error {
	if f != cli.FormatTable {
		return t.WriteDocument(f, planDocument{cli.NewHeader("Plan"), p})
	}
	for i := range p.Wishes {
		if i > 0 {
			fmt.Fprintln(t.Out)
		}
		if err := writeWish(t, &p.Wishes[i], p.Nodes); err != nil {
			return err
		}
	}
	return nil
}

func writeWish(t *cli.Terminal, w *plan.Wish, nodes int) error {
	subject := fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name)
	if !w.Fits {
		return writeRefusal(t, subject, w)
	}
	verb := "fits on"
	if w.Before {
		verb = "has been allocated on"
	}
	printf(t, "%s %s %s%s\n", subject, verb, w.Node, others(w, nodes))
	writeNotes(t, w)
	rows := [][]string{}
	for _, d := range w.Devices {
		var indices []string
		for _, i := range d.Indices {
			indices = append(indices, strconv.Itoa(i))
		}
		rows = append(rows, []string{d.Claim, d.Request, d.Device, strings.Join(indices, ","), strings.Join(d.LPUs, ",")})
	}
	if err := t.WriteTable([]string{"CLAIM", "REQUEST", "DEVICE", "LPUS", "ADDRESSES"}, rows); err != nil {
		return err
	}
	writeRings(t, w)
	if left := w.Left; left != nil && left.Longest == 0 {
		printf(t, "left: %s free, and no device\n", cli.Plural(left.LPUs, "LPU"))
	} else if left != nil {
		sizes := make([]string, len(left.Sizes))
		for i, s := range left.Sizes {
			sizes[i] = fmt.Sprintf("%d of %d", s.Devices, s.Size)
		}
		printf(t, "left: %s free, the largest device that can still be given has %d; devices to choose from: %s\n",
			cli.Plural(left.LPUs, "LPU"), left.Longest, strings.Join(sizes, ", "))
	}
	return nil
}

// printf writes text in which names of files and clusters stand.
func printf(t *cli.Terminal, format string, args ...any) {
	fmt.Fprint(t.People(), shell.Printable(fmt.Sprintf(format, args...)))
}

// others says where else a wish fits.
func others(w *plan.Wish, nodes int) string {
	if len(w.Others) == 0 {
		return ""
	}
	const shown = 5
	names := strings.Join(w.Others[:min(shown, len(w.Others))], ", ")
	if more := len(w.Others) - shown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf(", one of %d of %d nodes: also on %s", len(w.Others)+1, nodes, names)
}

func writeNotes(t *cli.Terminal, w *plan.Wish) {
	for _, note := range w.Notes {
		printf(t, "  note: %s\n", note)
	}
}

// refusalsShown is how many nodes a table of refusals has. A document has all of them.
const refusalsShown = 10

func writeRefusal(t *cli.Terminal, subject string, w *plan.Wish) error {
	verb := "does not fit"
	if len(w.Refused) > 1 {
		verb = fmt.Sprintf("fits on none of %d nodes; on %s", len(w.Refused), w.Refused[0].Node)
	}
	printf(t, "%s %s: %s\n", subject, verb, w.Refused[0].Reason)
	writeNotes(t, w)
	var rows [][]string
	shown := w.Refused[:min(refusalsShown, len(w.Refused))]
	for _, r := range shown {
		for j := range r.Requests {
			rows = append(rows, requestRow(r.Node, &r.Requests[j]))
		}
		if len(r.Requests) == 0 && r.Node != "" {
			rows = append(rows, []string{r.Node, "", "", "", "", "", r.Reason})
		}
	}
	if len(rows) > 0 {
		if err := t.WriteTable([]string{"NODE", "REQUEST", "MATCH", "TAINTED", "OVERLAP", "FREE", "WHY"}, rows); err != nil {
			return err
		}
	}
	if more := len(w.Refused) - len(shown); more > 0 {
		printf(t, "and %d more nodes, with no more free LPUs: -o json shows all\n", more)
	}
	if len(w.Refused) > 1 {
		writeSum(t, w.Refused)
	}
	writeCauses(t, &w.Refused[0])
	writeRings(t, w)
	return nil
}

// writeSum says of all nodes together what keeps their devices back.
func writeSum(t *cli.Terminal, refused []plan.Refusal) {
	var match, tainted, overlapping int
	keys, claims := map[string]bool{}, map[string]bool{}
	for i := range refused {
		for _, q := range refused[i].Requests {
			match, tainted, overlapping = match+q.Match, tainted+q.Tainted, overlapping+q.Overlapping
			for _, taint := range q.Taints {
				keys[taint.Key] = true
			}
			for _, h := range q.Holders {
				claims[h.Claim] = true
			}
		}
	}
	printf(t, "of %s that match: %d tainted", cli.Plural(match, "device"), tainted)
	if len(keys) > 0 {
		printf(t, " (%s)", strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
	}
	printf(t, ", %d overlap LPUs of %s\n", overlapping, cli.Plural(len(claims), "claim"))
}

func requestRow(node string, q *plan.RequestWhy) []string {
	row := []string{node, q.Claim + ": " + q.Request}
	for _, n := range []int{q.Match, q.Tainted, q.Overlapping, q.Free} {
		row = append(row, fmt.Sprint(n))
	}
	return append(row, q.Reason)
}

// writeCauses says of one node who has the LPUs that are wanted, and which taints keep
// devices back.
func writeCauses(t *cli.Terminal, r *plan.Refusal) {
	said := map[string]bool{}
	say := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		if !said[line] {
			printf(t, "%s", line)
		}
		said[line] = true
	}
	for _, q := range r.Requests {
		for _, h := range q.Holders {
			say("  %s has %s\n", h.Claim, strings.Join(h.LPUs, ", "))
		}
		for _, taint := range q.Taints {
			say("  the taint %s=%s is on %s\n", taint.Key, taint.Value, cli.Plural(taint.Devices, "device"))
		}
	}
}

func writeRings(t *cli.Terminal, w *plan.Wish) {
	for i := range w.Rings {
		printf(t, "%s", w.Rings[i].Text())
	}
	if legend := plan.Legend(w.Rings); legend != "" {
		printf(t, "  %s\n", legend)
	}
}
