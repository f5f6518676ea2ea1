package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func newRingCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ring",
		Short: "Check, show, convert and install the ring table",
		Long: `The ring table says which LPUs are cabled to which. lpuctl reads the network table of the HyperDex
toolchain (hyperdex-net) and its own form. It looks for ` + discovery.InstalledRingTable + `, then for HyperDex's own;
a table that anybody could have written is not trusted: ring install checks one and makes it the node's.`,
		Example: `  lpuctl ring check /tmp/hyperdex/xclbin/table_bdf.json --bind
  sudo lpuctl ring install /tmp/hyperdex/xclbin/table_bdf.json
  lpuctl topology`,
	}
	cmd.AddCommand(newRingCheckCommand(a), newRingShowCommand(a), newRingConvertCommand(a), newRingInstallCommand(a))
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
	data, err := readSmallFile(path)
	if err != nil {
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
		return noLPU(a.root)
	}
	b.inv = inv
	cabling, findings := ring.Bind(b.table, inv.RingCards())
	b.cabling, b.findings = cabling, append(b.findings, findings...)
	return nil
}

// nodeTable reads and binds the table that is named, or else the one that is in force on this node.
func (a *app) nodeTable(ctx context.Context, args []string) (*boundTable, error) {
	path := a.ringTable
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
		case inv.RingTable != nil:
			path = inv.RingTable.Path
		case len(ofTable) > 0:
			return &boundTable{path: ofTable[0].File, findings: ofTable}, nil
		default:
			return nil, &exitError{code: exitFailed, err: errors.New("this node has no ring table"),
				hint: "name a FILE; lpuctl ring install FILE makes it this node's"}
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
		a.report(b.findings)
		if b.cabling == nil {
			return &exitError{code: exitFound, err: fmt.Errorf("%s: cannot be used as it is", b.path)}
		}
		return do(b)
	}
}

func newRingCheckCommand(a *app) *cobra.Command {
	var f format
	var bind, strict bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Say everything that is wrong with a ring table",
		Long: `check reads a ring table in either format and reports all that is wrong with it. A FILE is judged by
itself, with --bind against the LPUs of this node; without FILE it is the node's own table, bound.
The exit code is 3 if there is an error, with --strict also if there is a warning.`,
		Example: `  lpuctl ring check
  lpuctl ring check table.json
  lpuctl ring check --bind --strict table.json -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := a.checkTable(cmd.Context(), args, bind)
			if err == nil {
				err = a.writeCheck(b, f)
			}
			if err != nil {
				return err
			}
			if b.findings.HasErrors() || strict && len(b.findings) > 0 {
				return found()
			}
			return nil
		},
	}
	a.ringTableFlag(cmd)
	formatFlag(cmd, &f, formatTable, formatJSON, formatYAML)
	cmd.Flags().BoolVar(&bind, "bind", false, "hold FILE against the LPUs of this node")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 3 on warnings too")
	return cmd
}

func (a *app) checkTable(ctx context.Context, args []string, bind bool) (*boundTable, error) {
	if len(args) > 0 && !bind {
		return readTable(args[0])
	}
	return a.nodeTable(ctx, args)
}

func (a *app) writeCheck(b *boundTable, f format) error {
	if f != formatTable {
		document := struct {
			APIVersion string       `json:"apiVersion"`
			Kind       string       `json:"kind"`
			File       string       `json:"file"`
			Format     string       `json:"format,omitempty"`
			Findings   finding.List `json:"findings"`
		}{discovery.APIVersion, "RingCheck", b.path, "", emptyNotNull(b.findings)}
		if b.table != nil {
			document.Format = string(b.table.Format)
		}
		return writeDocument(a.out, f, document)
	}
	a.report(b.findings)
	if b.table == nil || b.findings.HasErrors() {
		return nil
	}
	bound := ""
	if b.cabling != nil {
		bound = ", bound to the LPUs of this node"
	}
	a.say("%s: %s table of %s%s", b.path, b.table.Format, plural(len(b.table.IDs), "card"), bound)
	return nil
}

func newRingShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print the rings of this node's table, or of FILE held against this node",
		Long: `show prints the rings of this node's table, or of FILE held against this node, each in the order of its
cables: closed, or open where one cable is missing. An LPU without cables is alone.
The exit code is 3 if the table cannot be used.`,
		Example: `  lpuctl ring show
  lpuctl ring show table.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFile,
		RunE:              a.onTable(a.showRings),
	}
	a.ringTableFlag(cmd)
	return cmd
}

// showRings lists rings by the ids that the inventory gives them; an LPU by itself is on none.
func (a *app) showRings(b *boundTable) error {
	var rows [][]string
	rings := 0
	for _, r := range b.cabling.Rings {
		id, shape := fmt.Sprintf("ring%d", rings), "closed"
		if !r.Closed {
			shape = "open"
		}
		if len(r.Cards) == 1 {
			id, shape = "", "alone"
		} else {
			rings++
		}
		var names []string
		for _, card := range r.Cards {
			names = append(names, b.inv.LPUs[card].Name)
		}
		rows = append(rows, []string{id, shape, strings.Join(names, " ")})
	}
	return writeTable(a.out, []string{"RING", "SHAPE", "LPUS"}, rows)
}

func newRingConvertCommand(a *app) *cobra.Command {
	var to string
	var lpus []string
	cmd := &cobra.Command{
		Use:   "convert [FILE]",
		Short: "Print a ring table in the other format",
		Long: `convert prints this node's ring table, or FILE held against this node, as HyperDex reads it (hyperdex) or
in lpuctl's own form, keyed by PCI address (lpuctl). With --lpus it is the table for a container that has
just these LPUs: there they are numbered from 0, in the order of their PCI addresses.`,
		Example: `  lpuctl ring convert --to lpuctl > ring.yaml
  lpuctl ring convert --to hyperdex --lpus lpu2,lpu3 > table.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFile,
		RunE: a.onTable(func(b *boundTable) error {
			text, err := b.convert(to, lpus)
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		}),
	}
	a.ringTableFlag(cmd)
	cmd.Flags().StringVar(&to, "to", "hyperdex", "write as `FORMAT`: hyperdex or lpuctl")
	cmd.Flags().StringSliceVar(&lpus, "lpus", nil, "only these `LPUS`, renumbered as a container sees them")
	complete(cmd, "to", "hyperdex", "lpuctl")
	_ = cmd.RegisterFlagCompletionFunc("lpus", a.completeLPUList)
	return cmd
}

// convert writes the table in another format, for all LPUs or, where lpus are named, for a container with just these.
func (b *boundTable) convert(to string, lpus []string) ([]byte, error) {
	cards, err := lpusNamed(b.inv, lpus)
	if err != nil {
		return nil, err
	}
	if lpus == nil {
		for i := range b.inv.LPUs {
			cards = append(cards, i)
		}
	}
	if len(cards) == 0 {
		return nil, usage("--lpus names no LPU")
	}
	cabling := b.cabling.Renumber(cards)
	switch to {
	case "hyperdex":
		return ring.WriteHyperdex(cabling), nil
	case "lpuctl":
		addresses := make([]string, len(cards))
		for i, card := range cards {
			addresses[i] = b.inv.LPUs[card].Address.String()
		}
		return ring.WriteLpuctl(cabling, addresses), nil
	}
	return nil, usage("--to %s: expected hyperdex or lpuctl", to)
}

func newRingInstallCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "install FILE",
		Short: "Check a ring table and make it this node's",
		Long: `install reads a ring table in either format, checks it, holds it against the LPUs of this node, and writes
it keyed by PCI address to ` + discovery.InstalledRingTable + `. From then on the table is also the list of cards that
should be here: an LPU that is missing keeps its index. A table with an error is not installed.`,
		Example:           `  sudo lpuctl ring install /tmp/hyperdex/xclbin/table_bdf.json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFile,
		RunE:              a.onTable(a.install),
	}
}

func (a *app) install(b *boundTable) error {
	text, err := b.convert("lpuctl", nil)
	if err != nil {
		return err
	}
	path, err := a.root.Resolve(discovery.InstalledRingTable)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := wholefile.Replace(path, text); err != nil {
		return err
	}
	a.say("installed %s", path)
	if other := a.config.Ring.Table; other != "" && other != discovery.InstalledRingTable {
		a.complain(&exitError{err: fmt.Errorf("the config file names another ring table, %s, which stays in force", other), hint: "take ring.table out of the config file"})
	}
	return nil
}
