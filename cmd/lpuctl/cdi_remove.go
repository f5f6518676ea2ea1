package main

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

func newRemoveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove our spec file, and no other",
		Example: `  sudo lpuctl cdi remove
  sudo lpuctl cdi remove --spec-dir /etc/cdi`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.locateSpec()
			if err != nil {
				return err
			}
			return a.removeSpec(cmd, file)
		},
	}
	a.specDirFlag(cmd)
	return cmd
}

func (a *app) removeSpec(cmd *cobra.Command, file cdi.File) error {
	removed, err := file.Remove(cmd.Context())
	if err != nil {
		return err
	}
	if removed {
		a.say("removed %s", file.Path)
	} else {
		a.say("%s: not there, nothing to remove", file.Path)
	}
	return nil
}
