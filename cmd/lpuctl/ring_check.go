package main

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

func newRingCheckCommand(a *app) *cobra.Command {
	var f cli.Format
	var held, strict bool
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
		ValidArgsFunction: cli.CompleteFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			var b *boundTable
			var err error
			if len(args) > 0 && !held {
				b, err = readTable(args[0])
			} else {
				b, err = nodeTable(cmd.Context(), a, args)
			}
			if err != nil {
				return err
			}
			l := cli.FindingList{File: b.path, Findings: b.findings}
			if b.table == nil {
				return a.WriteFindings(l, f, strict, "")
			}
			l.Format = string(b.table.Format)
			bound := ""
			if b.cabling != nil {
				bound = ", bound to the LPUs of this node"
			}
			if !f.IsDocument() && !b.findings.HasErrors() {
				a.Say("%s: %s table of %s%s", b.path, b.table.Format, cli.Plural(len(b.table.IDs), "card"), bound)
			}
			return a.WriteFindings(l, f, strict, "nothing wrong")
		},
	}
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f)
	cmd.Flags().BoolVar(&held, "bind", false, "hold FILE against the LPUs of this node")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 3 on warnings too")
	return cmd
}
