package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newListCommand(a *app) *cobra.Command {
	var f cli.Format
	var follow bool
	cmd := &cobra.Command{
		Use:     "list [LPU...]",
		Aliases: []string{"ls", "get", "ps"},
		Short:   "List the LPUs of this node",
		Long: `list shows every LPU of this node, usable or not: a sick card keeps its place and its index.
Why one is not usable, what else to look at, and which are cordoned goes to stderr. With LPUs named it shows these.
--watch looks once a second, and as soon as a device node comes or goes, and keeps one odd reading from changing the health. On a
terminal the list stays in place; elsewhere each one follows the one before, below a line with the time. With -o json or yaml it
prints a document for each change. It ends with ^C, and that is exit code 0.
A ? in USED-BY says that there are processes that you may not inspect, and that may use the LPU.
Where LPUs are shared by leases, LEASE has the id of a lease (l7) or a reservation (r3), or "none" where an LPU is in use without a lease;
HOLDER has whose it is, and UNTIL when its time is over. WHY has the ids of the findings about an LPU. The table fits the terminal: a wide
one shows more columns, and WHY is cut where there is no room. On a pipe it is what a terminal of 80 columns has, and nothing is cut.
-o wide shows all columns whatever the width is.
A shell or program that lpuctl run started sees the LPUs that it may open; a line on stderr names those that are hidden from it.
` + lpuForms + `
The exit code is 4 if there is no LPU.`,
		Example: `  lpuctl list
  lpuctl list lpu0 lpu4
  lpuctl list --watch
  lpuctl list -o wide
  lpuctl list -o json | jq -r '.lpus[] | select(.usable | not) | .address'
  lpuctl list -o name          # names for podman run --device`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeLPUs(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			// As it is typed for kubectl.
			if cmd.CalledAs() == "get" && len(args) == 1 && (args[0] == "lpus" || args[0] == "lpu") {
				args = nil
			}
			if follow {
				return keepShowing(cmd.Context(), a, f, func(a *app, inv *discovery.Inventory) error { return list(cmd.Context(), a, inv, args, f) })
			}
			inv, err := a.scan(cmd.Context())
			if err != nil {
				return err
			}
			return list(cmd.Context(), a, inv, args, f)
		},
	}
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "print the list anew whenever it changes, until ^C")
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatWide, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

// list prints an inventory, or those of its LPUs that are named.
func list(ctx context.Context, a *app, inv *discovery.Inventory, words []string, f cli.Format) error {
	node.FindUsers(ctx, a.Root, inv)
	if err := keepNamed(a.Config.CDI.Kind, inv, words); err != nil {
		return err
	}
	none := len(inv.LPUs) == 0
	if len(words) == 0 {
		leaveOutHidden(a, inv)
	}
	if err := writeInventory(&a.Terminal, a.Root, a.Config.CDI.Kind, inv, f); err != nil {
		return err
	}
	a.Report(outOfOrder(inv))
	if none {
		return cli.NoLPU(a.Root)
	}
	return nil
}

// leaveOutHidden removes the LPUs that lpuctl run hides from this shell or program, and
// says so.
func leaveOutHidden(a *app, inv *discovery.Inventory) {
	var hidden []string
	inv.LPUs = slices.DeleteFunc(inv.LPUs, func(l discovery.LPU) bool {
		if l.IsHidden() {
			hidden = append(hidden, l.Name)
		}
		return l.IsHidden()
	})
	if len(hidden) > 0 {
		a.Say("lpuctl run started this shell or program, and hides from it: %s (lpuctl list %s shows one)", strings.Join(hidden, " "), hidden[0])
	}
}

// keepNamed removes the LPUs that are not named from an inventory; without names it keeps
// all.
func keepNamed(kind string, inv *discovery.Inventory, words []string) error {
	if len(words) == 0 {
		return nil
	}
	cards, err := inv.Resolve(kind, words...)
	if err != nil {
		return err
	}
	inv.LPUs = cli.Each(cards, func(card int) discovery.LPU { return inv.LPUs[card] })
	return nil
}

// outOfOrder returns what is wrong with the machine, why each LPU is not usable or else
// its warnings, and which LPUs are cordoned.
func outOfOrder(inv *discovery.Inventory) finding.List {
	findings := slices.Clone(inv.Problems)
	for i := range inv.LPUs {
		reasons := withoutNotes(inv.LPUs[i].Reasons)
		if first := reasons.FirstError(); first != nil {
			reasons = finding.List{*first}
		}
		findings = append(findings, reasons...)
	}
	return append(findings, cordonsOf(inv)...)
}

// cordonsOf are the findings that say which LPUs are cordoned.
func cordonsOf(inv *discovery.Inventory) (findings finding.List) {
	for _, l := range inv.LPUs {
		findings = append(findings, withID(l.Reasons, finding.Cordoned)...)
	}
	return findings
}

// withID are the findings that have one of these ids.
func withID(all finding.List, ids ...finding.ID) finding.List {
	return slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool { return !slices.Contains(ids, f.ID) })
}

func writeInventory(t *cli.Terminal, root host.Root, kind string, inv *discovery.Inventory, f cli.Format) error {
	switch f {
	case cli.FormatJSON, cli.FormatYAML:
		return t.WriteDocument(f, inv)
	case cli.FormatName:
		return t.WriteLines(cli.Each(inv.LPUs, func(l discovery.LPU) string { return kind + "=" + l.Name })...)
	}
	if len(inv.LPUs) == 0 {
		return nil
	}
	return writeLPUs(t, inv.LPUs, sharesByLease(root, inv), f == cli.FormatWide)
}

// lpuColumn is a column of list.
type lpuColumn struct {
	cli.Column
	cell func(l *discovery.LPU) string
}

// writeLPUs prints LPUs in the order of what people want to know: which, in what state,
// who has it.
func writeLPUs(t *cli.Terminal, lpus []discovery.LPU, leases, wide bool) error {
	columns := columnsOf(leases)
	if wide {
		columns = append(columns, wideColumns()...)
	}
	columns = append(columns, lpuColumn{cli.Column{Name: "WHY"}, whyText})
	rows := cli.Each(lpus, func(l discovery.LPU) []string {
		return cli.Each(columns, func(c lpuColumn) string { return c.cell(&l) })
	})
	heads := cli.Each(columns, func(c lpuColumn) cli.Column { return c.Column })
	if wide {
		return t.WriteWhole(heads, rows)
	}
	return t.WriteFitting(heads, rows)
}

// columnsOf are the columns of list but the last one. A share is what those who share a
// server look for.
func columnsOf(leases bool) []lpuColumn {
	column := func(name string, room cli.Room, cell func(l *discovery.LPU) string) lpuColumn {
		return lpuColumn{cli.Column{Name: name, Room: room}, cell}
	}
	shared := func(name string, room cli.Room, cell func(s share) string) lpuColumn {
		return column(name, room, func(l *discovery.LPU) string { return cell(shareOf(l)) })
	}
	columns := []lpuColumn{
		column("NAME", cli.Always, func(l *discovery.LPU) string { return l.Name }),
		column("HEALTH", cli.Always, (*discovery.LPU).Condition),
		column("USED-BY", cli.Always, usersText),
	}
	columns[1].Hue = stateHue
	place := cli.Usual
	if leases {
		place = cli.Roomy
		columns = append(columns,
			shared("LEASE", cli.Usual, func(s share) string { return s.id }),
			shared("HOLDER", cli.Usual, func(s share) string { return s.holder }),
			shared("UNTIL", cli.Usual, func(s share) string { return s.until }),
			shared("FOR", cli.Roomy, func(s share) string { return s.purpose }),
			shared("SINCE", cli.Roomy, func(s share) string { return s.since }))
	}
	return append(columns,
		column("ADDRESS", place, func(l *discovery.LPU) string { return l.Address.String() }),
		column("NUMA", place, func(l *discovery.LPU) string { return cli.Optional(l.NUMANode) }),
		column("RING", place, func(l *discovery.LPU) string { return ringText(l.Ring) }),
		column("NODE", cli.Roomy, func(l *discovery.LPU) string { return nodeNames(l.Nodes) }),
		column("LINK", cli.Roomy, func(l *discovery.LPU) string { return cli.Optional(l.Link) }),
		column("MODEL", cli.Roomy, func(l *discovery.LPU) string { return l.Model }),
		column("DRIVER", cli.Roomy, func(l *discovery.LPU) string { return l.Driver }))
}

// wideColumns are those that only -o wide has.
func wideColumns() []lpuColumn {
	column := func(name string, cell func(l *discovery.LPU) string) lpuColumn {
		return lpuColumn{cli.Column{Name: name}, cell}
	}
	return []lpuColumn{
		column("NEIGHBOURS", func(l *discovery.LPU) string { return neighboursText(l.Ring) }),
		column("SERIAL", func(l *discovery.LPU) string { return l.Serial }),
		column("SHELL", func(l *discovery.LPU) string { return l.Shell }),
		column("DRIVER-VERSION", func(l *discovery.LPU) string { return l.DriverVersion }),
		column("SWITCH", func(l *discovery.LPU) string { return cli.Optional(l.Switch) }),
		column("IOMMU", func(l *discovery.LPU) string { return cli.Optional(l.IOMMUGroup) }),
		column("MANAGEMENT", func(l *discovery.LPU) string { return managementText(l.Management) }),
	}
}

// whyText has the ids of the findings about an LPU. What they say goes to stderr.
func whyText(l *discovery.LPU) string {
	return strings.Join(cli.Each(l.Reasons, func(r finding.Finding) string { return string(r.ID) }), ",")
}

func nodeNames(nodes []discovery.Node) string {
	return strings.Join(cli.Each(nodes, func(n discovery.Node) string { return n.Path }), ",")
}

func ringText(r *discovery.RingPlace) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s:%d", r.ID, r.Position)
}

func neighboursText(r *discovery.RingPlace) string {
	if r == nil {
		return ""
	}
	if r.Previous == r.Next { // a ring of two
		return cmp.Or(r.Next, "-")
	}
	return cmp.Or(r.Previous, "-") + "," + cmp.Or(r.Next, "-")
}

// usersText names who uses an LPU: the first process and how many more; a question mark
// says that there may be others.
func usersText(l *discovery.LPU) string {
	var parts []string
	if len(l.Users) > 0 {
		parts = append(parts, l.Users[0].String())
	}
	if more := len(l.Users) - 1; more > 0 {
		parts = append(parts, fmt.Sprintf("+%d", more))
	}
	if l.UsersHidden {
		parts = append(parts, "?")
	}
	return strings.Join(parts, " ")
}

func managementText(m *discovery.Management) string {
	if m == nil {
		return ""
	}
	return m.Address.String()
}
