package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func newRingCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ring",
		Short: "Check, show, read, convert and install the ring table",
		Long: `The ring table says which LPUs are cabled to which. lpuctl reads the network table of the HyperDex
toolchain (hyperdex-net) and its own form. It looks for ` + discovery.InstalledRingTable + `, then for HyperDex's own;
a table that anybody could have written is not trusted: ring install checks one and installs it on this node.`,
		Example: `  lpuctl ring check /tmp/hyperdex/xclbin/table_bdf.json --bind
  sudo lpuctl ring install /tmp/hyperdex/xclbin/table_bdf.json
  lpuctl topology`,
	}
	cmd.AddCommand(newRingCheckCommand(a), newRingShowCommand(a), newRingConvertCommand(a), newRingInstallCommand(a),
		newRingReadCommand(a))
	return cmd
}

// boundTable is a table with what it says of this node.
type boundTable struct {
	path     string
	table    *ring.Table
	cabling  *ring.Cabling // nil: not bound, or cannot be
	findings finding.List
	inv      *discovery.Inventory // nil: not bound
}

// readTable reads a table that was named on the command line.
func readTable(path string) (*boundTable, error) {
	data, err := cli.ReadSmallFile(path)
	if err != nil && !errors.Is(err, wholefile.ErrTooLarge) { // Parse reports that it is too large
		return nil, err
	}
	table, findings := ring.Parse(path, data)
	return &boundTable{path: path, table: table, findings: findings}, nil
}

// bind reads a table and holds it against the LPUs of this node, the cards among them that
// the table knows and that are not here.
func bind(ctx context.Context, a *app, path string) (*boundTable, error) {
	b, err := readTable(path)
	if err != nil || b.table == nil || b.findings.HasErrors() {
		return b, err
	}
	b.inv, err = a.scanWith(ctx, discovery.Options{Expect: b.table})
	if err != nil {
		return nil, err
	}
	if len(b.inv.LPUs) == 0 {
		return nil, cli.NoLPU(a.Root)
	}
	cabling, findings := ring.Bind(b.table, b.inv.RingCards())
	b.cabling, b.findings = cabling, append(b.findings, findings...)
	return b, nil
}

// nodeTable reads and binds the table that is named, or else the one that is in force on
// this node. Then it says what HyperDex makes wrongly of its own table too.
func nodeTable(ctx context.Context, a *app, args []string) (*boundTable, error) {
	if len(args) > 0 {
		return bind(ctx, a, args[0])
	}
	inv, err := a.scan(ctx)
	if err != nil {
		return nil, err
	}
	ofTables := slices.DeleteFunc(inv.Problems, func(f finding.Finding) bool { return f.File == "" })
	path := a.RingTable
	switch {
	case path != "":
	case inv.RingTable != nil && !inv.RingTable.Kept:
		path = inv.RingTable.Path
	case len(ofTables) > 0:
		return &boundTable{path: ofTables[0].File, findings: ofTables}, nil
	default:
		return nil, cli.Fail(cli.ExitFailed, "name a FILE; lpuctl ring install FILE installs it on this node", "this node has no ring table")
	}
	b, err := bind(ctx, a, path)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(ofTables, func(f finding.Finding) bool { return f.File == path })
	b.findings = append(b.findings, others...)
	return b, nil
}

// onTable makes the RunE of a command that needs the cabling: it ends where there is
// none.
func onTable(a *app, do func(*boundTable) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		b, err := nodeTable(cmd.Context(), a, args)
		if err != nil {
			return err
		}
		return b.use(&a.Terminal, do)
	}
}

// use reports what is wrong with the table, and does something with it if it has a cabling.
func (b *boundTable) use(t *cli.Terminal, do func(*boundTable) error) error {
	t.Report(b.findings)
	if b.cabling == nil {
		return cli.Fail(cli.ExitFound, "", "%s: cannot be used as it is", b.path)
	}
	return do(b)
}
