package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// detailLimit bounds how long names and vital product data may take: they are decoration.
const detailLimit = 3 * time.Second

func newDescribeCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:     "describe LPU...",
		Aliases: []string{"inspect"},
		Short:   "Show everything about LPUs",
		Long: `describe shows LPUs: what list shows and who uses each, why it is not usable if it is not, its temperatures and its power,
its place in the PCI tree, and what pci.ids and its vital product data say of it. Beside the health stands what lpuctl serve says, if
serve runs on this node: it has watched the LPU for longer, and the health is judged by what it remembers.
` + lpuForms,
		Example: `  lpuctl describe lpu0
  lpuctl describe 0000:b1:00.1
  lpuctl describe 3 4 -o yaml`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeLPUs(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			inv, err := a.scan(cmd.Context())
			if err != nil {
				return err
			}
			cards, err := inv.Resolve(a.Config.CDI.Kind, args...)
			if err != nil {
				return err
			}
			node.FindUsers(cmd.Context(), a.Root, inv)
			// What is not known of the machine's LPUs and is shown of each.
			a.Report(withID(inv.Problems, finding.UsersHidden, finding.CordonsUnreadable))
			return describe(cmd.Context(), &a.Terminal, a.Root, inv, cards, f)
		},
	}
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f)
	return cmd
}

// description is an LPU with its details.
type description struct {
	*discovery.LPU
	Details discovery.Details `json:"details"`
}

func describe(ctx context.Context, t *cli.Terminal, root host.Root, inv *discovery.Inventory, cards []int, f cli.Format) error {
	var all []description
	noted := ""
	for _, card := range cards {
		l := &inv.LPUs[card]
		details, err := discovery.Describe(ctx, string(root), l, detailLimit)
		if err != nil && err.Error() != noted {
			noted = err.Error()
			t.Say("%s", noted)
		}
		all = append(all, description{l, details})
	}
	switch {
	case f.IsDocument() && len(all) == 1:
		return t.WriteDocument(f, struct {
			cli.Header
			description
		}{cli.NewHeader("LPU"), all[0]})
	case f.IsDocument():
		return t.WriteDocument(f, struct {
			cli.Header
			LPUs []description `json:"lpus"`
		}{cli.NewHeader("LPUList"), all})
	}
	for i, d := range all {
		if i > 0 {
			fmt.Fprintln(t.Out)
		}
		if err := writeDescription(t.People(), d.LPU, d.Details); err != nil {
			return err
		}
	}
	return nil
}

func writeDescription(out io.Writer, l *discovery.LPU, d discovery.Details) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
	line("NUMA node", cli.Optional(l.NUMANode))
	line("PCIe root", l.PCIeRoot)
	line("PCI path", pathText(d.Path))
	line("Switch", cli.Optional(l.Switch))
	if l.Link != nil {
		line("Link", fmt.Sprintf("%s (at most %s)", l.Link, l.Link.Most()))
	}
	line("Power state", l.PowerState)
	if l.Watts != nil {
		line("Power", fmt.Sprintf("%.1f W", *l.Watts))
	}
	for _, t := range l.Temperatures {
		line("Temperature", describeTemperature(t))
	}
	line("IOMMU group", cli.Optional(l.IOMMUGroup))
	for _, m := range l.Mounts {
		line("Mount", describeMount(m))
	}
	line("Ring", ringText(l.Ring))
	line("Neighbours", neighboursText(l.Ring))
	for _, u := range l.Users {
		line("Used by", u.String())
	}
	if l.UsersHidden {
		line("Used by", "?")
	}
	if l.Leased != nil {
		line("Leased", heldBy(l.Leased).text())
	}
	if l.Reserved != nil {
		line("Reserved", heldBy(l.Reserved).text())
	}
	line("Health", l.Condition())
	line("Serve says", judgedText(l.Judged))
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range l.Reasons {
		fmt.Fprintf(out, "  %s: %s [%s]\n    remedy: %s\n", r.Severity, r.Message, r.ID, r.Remedy)
	}
	return nil
}

func describeNode(n discovery.Node) string {
	verified := "seen in /dev"
	if !n.Verified {
		verified = "not verified: /dev or /sys/dev/char cannot be seen"
	}
	return fmt.Sprintf("%s (%d:%d, %s)", n.Path, n.Major, n.Minor, verified)
}

func describeTemperature(t health.Temperature) string {
	text := fmt.Sprintf("%s %.0f °C", t.Label, t.Celsius)
	if t.Critical > 0 {
		text += fmt.Sprintf(" (critical from %.0f °C)", t.Critical)
	}
	return text
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

func pathText(path []pci.Address) string {
	return strings.Join(cli.Each(path, pci.Address.String), " > ")
}
