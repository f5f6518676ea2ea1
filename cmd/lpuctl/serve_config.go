package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// serveFlags gives the command the flags of its config, with the defaults for the help to
// show.
func serveFlags(cmd *cobra.Command) {
	d := cli.DefaultServe()
	d.Flags().VisitAll(func(f *pflag.Flag) {
		cli.FromEnvironment(f)
		cmd.Flags().AddFlag(f)
	})
	cli.Complete(cmd, "device-list-strategy", string(plugin.CDI), string(plugin.DeviceSpecs))
	cli.Complete(cmd, "on-cdi-off", string(node.FailOnCDIOff), string(node.WarnOnCDIOff), string(node.SpecsOnCDIOff))
	cli.Complete(cmd, "numa", string(plugin.NUMAOff), string(plugin.NUMAOn), string(plugin.NUMAAuto))
	_ = cmd.MarkFlagDirname("plugin-dir")
	_ = cmd.MarkFlagFilename("nfd")
}

// serveConfig is the configuration of the file, overridden by the flags that were given,
// and what the plugin needs of it.
func (a *app) serveConfig(cmd *cobra.Command) (c cli.ServeConfig, options plugin.Options, err error) {
	file, err := a.LocateSpec()
	if err != nil {
		return c, options, err
	}
	c = a.Config.Serve
	overrides := c.Flags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if overrides.Lookup(f.Name) != nil {
			_ = overrides.Set(f.Name, f.Value.String()) // of the same type, which has taken it before
		}
	})
	if faults := c.Check(); len(faults) > 0 {
		err = cli.Usage("serve.%s: %s", faults[0].Path, faults[0].Message)
	}
	return c, plugin.Options{
		Strategy: plugin.Strategy(c.DeviceListStrategy),
		Spec: node.Spec{
			File: file, Options: cdi.Options{Kind: a.Config.CDI.Kind, Annotations: a.Config.CDI.Annotations},
			Orders: cli.SpecOrders(cmd.Context(), a.Root),
		},
		RequireConnected: c.RequireConnected, NUMA: plugin.NUMA(c.NUMA), PreStart: c.PreStartCheck,
		OnCDIOff: node.OnCDIOff(c.OnCDIOff),
	}, err
}

// configInterval is how often serve looks whether the config file has changed. An
// administrator cannot send a signal to a pod that has no shell.
const configInterval = 5 * time.Second

// configFile follows the config file while serve runs.
type configFile struct {
	app           *app
	inPlace, seen string // its state when it was read, and at the latest look
}

// followConfig is called before the file is read: what changes after this is seen.
func (a *app) followConfig() configFile {
	state := a.configState()
	return configFile{app: a, inPlace: state, seen: state}
}

// look reports whether the file has changed since it was read last, and not since the
// look before: it may be half-way written, or away for a moment while an editor writes it
// again.
func (f *configFile) look() (changed bool) {
	before := f.seen
	f.seen = f.app.configState()
	changed = f.seen != f.inPlace && f.seen == before
	if changed {
		f.inPlace = f.seen
	}
	return changed
}

// configState changes when the config file does, or what a link in its path leads to, as
// in a volume of a ConfigMap. It is "" if there is none.
func (a *app) configState() string {
	name := a.ConfigFile
	if name == "" {
		name, _ = a.Root.Resolve(cli.DefaultConfigFile) // the error comes when it is read
	}
	return host.State(name)
}

// reload reads the config file again. If it has faults, all stays as it is.
func (a *app) reload(cmd *cobra.Command) (cli.ServeConfig, plugin.Options, error) {
	old := a.Config
	a.Config = nil
	c, options, err := a.serveConfig(cmd)
	if err == nil {
		err = a.checkNetwork(c)
	}
	if err != nil {
		a.Config = old
		a.Log.Error("the config file has faults; everything stays as it is", "error", err)
	} else {
		a.Log.Info("read the config file again", "file", a.Config.File)
	}
	return c, options, err
}
