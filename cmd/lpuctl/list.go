package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

func newListCommand(a *app) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the LPUs of this node",
		Long: `list shows every LPU of this node, usable or not: a sick card keeps its place and its index.
Why one is not usable goes to stderr. The exit code is 4 if there is no LPU.`,
		Example: `  lpuctl list
  lpuctl list -o wide
  lpuctl list -o json | jq -r '.lpus[] | select(.usable | not) | .address'
  lpuctl list -o name          # names for podman run --device`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := a.scan(cmd.Context(), discovery.Options{})
			if err != nil {
				return err
			}
			if err := a.writeInventory(inv, f); err != nil {
				return err
			}
			a.report(whyUnusable(inv))
			if len(inv.LPUs) == 0 {
				return noLPU(a.root)
			}
			return nil
		},
	}
	formatFlag(cmd, &f, formatTable, formatWide, formatJSON, formatYAML, formatName)
	return cmd
}

// whyUnusable is what is wrong with the machine, and for each LPU that is not usable the first reason.
func whyUnusable(inv *discovery.Inventory) []discovery.Finding {
	findings := slices.Clone(inv.Problems)
	for _, l := range inv.LPUs {
		i := slices.IndexFunc(l.Reasons, func(r discovery.Finding) bool { return r.Severity == discovery.SeverityError })
		if i >= 0 {
			findings = append(findings, l.Reasons[i])
		}
	}
	return findings
}

func (a *app) writeInventory(inv *discovery.Inventory, f format) error {
	switch f {
	case formatJSON, formatYAML:
		return writeDocument(a.out, f, inv)
	case formatName:
		var names strings.Builder
		for _, l := range inv.LPUs {
			names.WriteString(a.config.CDI.Kind + "=" + l.Name + "\n")
		}
		_, err := a.out.Write([]byte(names.String()))
		return err
	}
	if len(inv.LPUs) == 0 {
		return nil
	}
	header := []string{"NAME", "ADDRESS", "MODEL", "DRIVER", "NODE", "NUMA", "LINK", "HEALTH"}
	if f == formatWide {
		header = append(header, "SERIAL", "SHELL", "DRIVER-VERSION", "SWITCH", "IOMMU", "MANAGEMENT", "REASON")
	}
	var rows [][]string
	for _, l := range inv.LPUs {
		row := []string{l.Name, l.Address.String(), l.Model, l.Driver, nodeNames(l.Nodes), number(l.NUMANode), linkText(l.Link), string(l.Health)}
		if f == formatWide {
			row = append(row, l.Serial, l.Shell, l.DriverVersion, addressText(l.Switch), number(l.IOMMUGroup), managementText(l.Management), reasonText(l.Reasons))
		}
		rows = append(rows, row)
	}
	return writeTable(a.out, header, rows)
}

func nodeNames(nodes []discovery.Node) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Path
	}
	return strings.Join(names, ",")
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func linkText(l *discovery.Link) string {
	if l == nil {
		return ""
	}
	return l.String()
}

func addressText(a *discovery.Address) string {
	if a == nil {
		return ""
	}
	return a.String()
}

func managementText(m *discovery.Management) string {
	if m == nil {
		return ""
	}
	return m.Address.String()
}

func reasonText(reasons []discovery.Finding) string {
	ids := make([]string, len(reasons))
	for i, r := range reasons {
		ids[i] = r.ID
	}
	return strings.Join(ids, ",")
}
