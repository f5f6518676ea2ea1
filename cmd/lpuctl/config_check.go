package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
)

func newConfigCheckCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a config file, by default this node's",
		Long: `check reads a config file, without FILE that of --config or else this node's, and reports everything that is
wrong with it, with file and line.
The exit code is 0 if nothing is, 3 if something is, 1 if the file cannot be read.`,
		Example: `  lpuctl config check
  lpuctl config check ./config.yaml -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE: func(_ *cobra.Command, args []string) error {
			name := cmp.Or(append(args, a.ConfigFile, a.Root.Shown(cli.DefaultConfigFile))...)
			data, err := cli.ReadSmallFile(name)
			if len(args) == 0 && a.ConfigFile == "" && host.IsAbsent(err) {
				return a.WriteFindings(cli.FindingList{File: name}, f, false,
					name+": there is no such file, which is optional: built-in values hold (lpuctl config show)")
			}
			if err != nil {
				return err
			}
			c, findings := cli.ParseConfig(name, data)
			good := fmt.Sprintf("%s: nothing wrong; %s", name, cli.Plural(len(c.Models), "device model"))
			return a.WriteFindings(cli.FindingList{File: name, Findings: findings}, f, false, good)
		},
	}
	a.FormatFlag(cmd, &f)
	return cmd
}
