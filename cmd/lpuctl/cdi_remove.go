package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
			file, err := a.LocateSpec()
			if err != nil {
				return err
			}
			return a.removeSpec(cmd, file)
		},
	}
	a.SpecDirFlag(cmd)
	return cmd
}

func (a *app) removeSpec(cmd *cobra.Command, file cdi.File) error {
	if _, err := os.Stat(filepath.Dir(file.Path)); errors.Is(err, fs.ErrNotExist) {
		a.Say("%s", removal(file, false))
		return nil
	}
	held, err := file.Hold(cmd.Context())
	if err != nil {
		return err
	}
	defer held.Release()
	removed, err := held.Remove()
	if err == nil {
		a.Say("%s", removal(file, removed))
	}
	return err
}

// removal says what became of the file.
func removal(file cdi.File, removed bool) string {
	if removed {
		return "removed " + file.Path
	}
	return file.Path + ": not there, nothing to remove"
}
