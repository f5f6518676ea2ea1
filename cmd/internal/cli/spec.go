package cli

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// SpecDirFlag lets a command look for the CDI spec in another directory.
func (a *App) SpecDirFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.SpecDir, "spec-dir", "",
		"`DIR` under the root in which the spec lies (default "+cdi.DefaultSpecDir+", or "+SpecDirVariable+", or cdi.specDir of the config file)")
	_ = cmd.MarkFlagDirname("spec-dir")
}

// LocateSpec says which file the CDI spec is, by flags, environment and config file.
func (a *App) LocateSpec() (cdi.File, error) {
	if err := a.LoadConfig(); err != nil {
		return cdi.File{}, err
	}
	return cdi.Locate(string(a.Root), a.Config.CDI.SpecDir, a.Config.CDI.Kind)
}
