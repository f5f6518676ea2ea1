package cli

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/internal/features"
)

// NodeNameFlag tells a daemon the name of its node.
func (a *App) NodeNameFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.NodeName, "node-name", "",
		"`NAME` of this node in the cluster, by which it finds its place in topology of the config file; empty: the host name")
	FromEnvironment(cmd.Flags().Lookup("node-name"))
}

// CheckNodeName returns a usage error if --node-name cannot be the name of a node.
func (a *App) CheckNodeName() error {
	if err := features.CheckNodeName(a.NodeName); a.NodeName != "" && err != nil {
		return Usage("--node-name: %v", err)
	}
	return nil
}
