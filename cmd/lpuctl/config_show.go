package main

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration",
		Long: `The configuration is one optional file, ` + cli.DefaultConfigFile + `. It says where the CDI spec goes and
adds device models to the built-in table, or changes them. A value is taken from the flag, else from the
environment, else from the file, else it is built in.`,
		Example: `  lpuctl config show
  lpuctl config check ./config.yaml`,
	}
	cmd.AddCommand(newConfigShowCommand(a), newConfigCheckCommand(a))
	return cmd
}

func newConfigShowCommand(a *app) *cobra.Command {
	f := cli.FormatYAML
	cmd := &cobra.Command{
		Use:     "show",
		Aliases: []string{"view"},
		Short:   "Print the effective configuration and where each value comes from",
		Example: `  lpuctl config show
  lpuctl config show -o json | jq .origins`,
		RunE: func(*cobra.Command, []string) error {
			if err := a.LoadConfig(); err != nil {
				return err
			}
			origins := map[string]string{}
			text, err := a.Config.Annotated(func(path, origin string) { origins[path] = origin })
			switch {
			case err != nil:
			case f == cli.FormatJSON:
				err = a.WriteDocument(f, struct {
					*cli.Config
					Origins map[string]string `json:"origins"`
				}{a.Config, origins})
			default:
				_, err = a.Out.Write(text)
			}
			return err
		},
	}
	a.FormatFlag(cmd, &f, cli.FormatYAML, cli.FormatJSON)
	return cmd
}
