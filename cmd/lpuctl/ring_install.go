package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

func newRingInstallCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "install FILE",
		Short: "Check a ring table and install it on this node",
		Long: `install reads a ring table in either format, checks it, holds it against the LPUs of this node, and writes
it keyed by PCI address to ` + discovery.InstalledRingTable + `. From then on the table is also the list of cards that
should be here: an LPU that is missing keeps its index. A table with an error is not installed.`,
		Example:           `  sudo lpuctl ring install /tmp/hyperdex/xclbin/table_bdf.json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE:              onTable(a, func(b *boundTable) error { return b.install(a) }),
	}
}

// install writes the table where lpuctl looks for it.
func (b *boundTable) install(a *app) error {
	text, err := b.convert(a, "lpuctl", nil)
	if err != nil {
		return err
	}
	path, err := a.Root.Resolve(discovery.InstalledRingTable)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := wholefile.Replace(path, text); err != nil {
		return err
	}
	a.Say("installed %s", path)
	if other := a.Config.Ring.Table; other != "" && other != discovery.InstalledRingTable {
		a.Complain(cli.Fail(cli.ExitDone, "remove ring.table from the config file",
			"the config file names another ring table, %s, which stays in force", other))
	}
	return nil
}
