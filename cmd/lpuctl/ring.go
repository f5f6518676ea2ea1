package main

import (
	"context"
	"errors"
	"fmt"
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

// bind holds the table against the LPUs of this node, the cards among them that the table knows and that are
// not here.
func (a *app) bind(ctx context.Context, b *boundTable) error {
	if b.table == nil || b.findings.HasErrors() {
		return nil
	}
	inv, err := a.scan(ctx, discovery.Options{Expect: b.table})
	if err != nil {
		return err
	}
	if len(inv.LPUs) == 0 {
		return cli.NoLPU(a.Root)
	}
	b.inv = inv
	cabling, findings := ring.Bind(b.table, inv.RingCards())
	b.cabling, b.findings = cabling, append(b.findings, findings...)
	return nil
}

// nodeTable reads and binds the table that is named, or else the one that is in force on this node.
func (a *app) nodeTable(ctx context.Context, args []string) (*boundTable, error) {
	path := a.RingTable
	if len(args) > 0 {
		path = args[0]
	}
	if path == "" {
		inv, err := a.scan(ctx, discovery.Options{})
		if err != nil {
			return nil, err
		}
		ofTable := slices.DeleteFunc(inv.Problems, func(f finding.Finding) bool { return f.File == "" })
		switch {
		case inv.RingTable != nil && !inv.RingTable.Kept:
			path = inv.RingTable.Path
		case len(ofTable) > 0:
			return &boundTable{path: ofTable[0].File, findings: ofTable}, nil
		default:
			return nil, cli.Fail(cli.ExitFailed, "name a FILE; lpuctl ring install FILE installs it on this node", "this node has no ring table")
		}
	}
	b, err := readTable(path)
	if err != nil {
		return nil, err
	}
	return b, a.bind(ctx, b)
}

// onTable makes the RunE of a command that needs the cabling: it ends where there is none.
func (a *app) onTable(do func(*boundTable) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		b, err := a.nodeTable(cmd.Context(), args)
		if err != nil {
			return err
		}
		a.Report(b.findings)
		if b.cabling == nil {
			return &cli.ExitError{Code: cli.ExitFound, Err: fmt.Errorf("%s: cannot be used as it is", b.path)}
		}
		return do(b)
	}
}
