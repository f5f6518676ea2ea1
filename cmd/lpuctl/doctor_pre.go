package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
)

// addPre adds the flags of the checks before an installation.
func addPre(_ *app, cmd *cobra.Command) {
	cmd.Flags().Bool("pre", false,
		"say what this host lacks before lpuctl is installed: kernel, driver, container runtime, room; no LPU need be there")
}

// pre runs the checks before an installation if --pre is given. asked is that it is.
func (o *doctorOptions) pre(cmd *cobra.Command, a *app) (asked bool, err error) {
	if asked, _ = cmd.Flags().GetBool("pre"); !asked {
		return false, nil
	}
	if cmd.Flags().NArg() > 0 {
		return true, cli.Usage("--pre looks at the host, and takes no LINK")
	}
	if err := a.LoadConfig(); err != nil {
		return true, err
	}
	d := doctor.Diagnose(cmd.Context(), o.within, doctor.Before(doctor.Host{
		Root: a.Root, Drivers: driversOf(a),
		Runtimes: func(ctx context.Context) []runtimes.Runtime {
			return runtimes.Check(ctx, string(a.Root), runtimes.Options{Timeout: perRuntime(o.within)})
		},
	}))
	o.open = true
	return true, o.show(a, d)
}

// driversOf are the drivers under which the LPUs of the config are usable.
func driversOf(a *app) (drivers []string) {
	for _, m := range a.Config.Models {
		if m.IsEnabled() {
			drivers = append(drivers, m.Drivers...)
		}
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}
