package cli

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/internal/features"
)

// NodeNameFlag tells a daemon the name of its node.
func NodeNameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "node-name", "",
		"`NAME` of this node in the cluster, by which it finds its place in topology of the config file; empty: the host name")
	FromEnvironment(cmd.Flags().Lookup("node-name"))
}

// CheckNodeName returns a usage error if --node-name cannot be the name of a node.
func CheckNodeName(name string) error {
	if err := features.CheckNodeName(name); name != "" && err != nil {
		return Usage("--node-name: %v", err)
	}
	return nil
}
