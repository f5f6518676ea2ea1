package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// detailLimit bounds how long names and vital product data may take: they are decoration.
const detailLimit = 3 * time.Second

func newDescribeCommand(a *app) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "describe LPU",
		Short: "Show everything about one LPU",
		Long: `describe shows one LPU, named by name, index or PCI address: what list shows and who uses it, why it is not
usable if it is not, its place in the PCI tree, and what pci.ids and its vital product data say of it.`,
		Example: `  lpuctl describe lpu0
  lpuctl describe 0000:b1:00.1
  lpuctl describe 3 -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeLPU,
		RunE: func(cmd *cobra.Command, args []string) error {
			inv, err := a.scan(cmd.Context(), discovery.Options{})
			if err != nil {
				return err
			}
			l, err := inv.Find(args[0])
			if err != nil {
				return &exitError{code: exitFailed, err: err, hint: "see lpuctl list"}
			}
			known := len(inv.Problems)
			a.findUsers(cmd.Context(), inv)
			a.report(inv.Problems[known:]) // that there may be users it cannot see
			details, err := discovery.Describe(cmd.Context(), string(a.root), l, detailLimit)
			if err != nil {
				a.say("%s: %v", l.Name, err)
			}
			if f != formatTable {
				return writeDocument(a.out, f, struct {
					*discovery.LPU
					Details discovery.Details `json:"details"`
				}{l, details})
			}
			return a.writeDescription(l, details)
		},
	}
	a.ringTableFlag(cmd)
	formatFlag(cmd, &f, formatTable, formatJSON, formatYAML)
	return cmd
}

func (a *app) writeDescription(l *discovery.LPU, d discovery.Details) error {
	tw := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(tw, "%s:\t%s\n", key, value)
		}
	}
	line("Name", l.Name)
	line("Model", l.Model)
	line("PCI address", l.Address.String())
	if l.Vendor != "" {
		line("PCI ids", fmt.Sprintf("%s:%s, subsystem %s:%s", l.Vendor, l.Device, l.Subvendor, l.Subdevice))
	}
	line("PCI name", strings.TrimSpace(d.VendorName+" "+d.ProductName))
	line("Board", strings.TrimSpace(d.Board+" "+d.PartNumber))
	line("Serial", cmp.Or(l.Serial, d.BoardSerial))
	line("Shell", l.Shell)
	line("Driver", strings.TrimSpace(l.Driver+" "+l.DriverVersion))
	for _, n := range l.Nodes {
		line("Node", describeNode(n))
	}
	line("Management", managementText(l.Management))
	line("NUMA node", optional(l.NUMANode))
	line("PCIe root", l.PCIeRoot)
	line("PCI path", pathText(d.Path))
	line("Switch", optional(l.Switch))
	if l.Link != nil {
		line("Link", fmt.Sprintf("%s (at most %s)", l.Link, l.Link.Most()))
	}
	line("IOMMU group", optional(l.IOMMUGroup))
	for _, m := range l.Mounts {
		line("Mount", describeMount(m))
	}
	line("Ring", ringText(l.Ring))
	line("Neighbours", neighboursText(l.Ring))
	for _, u := range l.Users {
		line("Used by", userText(u))
	}
	line("Health", healthText(l))
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range l.Reasons {
		fmt.Fprintf(a.out, "  %s: %s [%s]\n    remedy: %s\n", r.Severity, r.Message, r.ID, r.Remedy)
	}
	return nil
}

func describeNode(n discovery.Node) string {
	verified := "seen in /dev"
	if !n.Verified {
		verified = "not verified: /dev cannot be seen"
	}
	return fmt.Sprintf("%s (%d:%d, %s)", n.Path, n.Major, n.Minor, verified)
}

func describeMount(m discovery.Mount) string {
	text := m.HostPath
	if m.ContainerPath != "" {
		text += " on " + m.ContainerPath
	}
	if !m.Present {
		text += " (not on this host: containers do not get it)"
	}
	return text
}

func pathText(path []discovery.Address) string {
	names := make([]string, len(path))
	for i, p := range path {
		names[i] = p.String()
	}
	return strings.Join(names, " > ")
}

// completeLPU offers the names of this node's LPUs for a command's one argument, or for a flag of a command that has none.
func (a *app) completeLPU(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.lpuNames(cmd, ""), cobra.ShellCompDirectiveNoFileComp
}

// completeLPUList offers them for a flag that takes several, separated by commas: those that are not yet there.
func (a *app) completeLPUList(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	given := typed[:strings.LastIndex(typed, ",")+1]
	return a.lpuNames(cmd, given), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// lpuNames are the names of this node's LPUs with what tells them apart, or each after what was given of a list.
func (a *app) lpuNames(cmd *cobra.Command, given string) []string {
	if a.prepare(cmd) != nil {
		return nil
	}
	inv, err := a.scan(cmd.Context(), discovery.Options{})
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range inv.LPUs {
		switch {
		case given == "":
			names = append(names, fmt.Sprintf("%s\t%s %s", l.Name, l.Address, healthText(&l)))
		case !strings.Contains(","+given, ","+l.Name+","):
			names = append(names, given+l.Name) // in bash, what has a comma completes only without a description
		}
	}
	return names
}
