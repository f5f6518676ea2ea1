package main

import (
	"fmt"
	"net"
	"path"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// ServeConfig says how `lpuctl serve` hands out LPUs.
type ServeConfig struct {
	Resource           string `json:"resource"`
	PluginDir          string `json:"pluginDir"` // path under the root
	DeviceListStrategy string `json:"deviceListStrategy"`
	OnCDIOff           string `json:"onCdiOff"`
	RequireConnected   bool   `json:"requireConnected"`
	NUMA               string `json:"numa"`
	PreStartCheck      bool   `json:"preStartCheck"`
	Overlap            bool   `json:"overlap"`
	Interval           string `json:"interval"`
	Listen             string `json:"listen"`       // TCP address of /healthz, /readyz and /metrics; "": none
	PodResources       string `json:"podResources"` // socket under the root where the kubelet tells which pods have LPUs; "": it is not asked
	NFD                string `json:"nfd"`          // path under the root of the feature file; "": none
	NFDExpiry          string `json:"nfdExpiry"`    // for how long what stands in it counts
}

func defaultServe() ServeConfig {
	return ServeConfig{
		Resource: plugin.DefaultResource, PluginDir: "/var/lib/kubelet/device-plugins", DeviceListStrategy: string(plugin.CDI),
		OnCDIOff: string(plugin.WarnOnCDIOff), NUMA: string(plugin.NUMAOff), Interval: "1s", Listen: ":9477",
		NFDExpiry: "1h",
	}
}

// flags are those that stand for a key: one that is set sets the key of c.
func (c *ServeConfig) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.StringVar(&c.Resource, "resource", c.Resource, "extended `RESOURCE` that pods ask for")
	f.StringVar(&c.PluginDir, "plugin-dir", c.PluginDir, "`DIR` under the root with the sockets of the kubelet and its plugins")
	f.StringVar(&c.DeviceListStrategy, "device-list-strategy", c.DeviceListStrategy,
		"`STRATEGY` by which containers get LPUs: cdi-cri or device-specs")
	f.StringVar(&c.OnCDIOff, "on-cdi-off", c.OnCDIOff, "what to do (`POLICY`) while the runtime has CDI off: fail, warn or device-specs")
	f.BoolVar(&c.RequireConnected, "require-connected", c.RequireConnected, "refuse a pod rather than give it LPUs that are not connected")
	f.StringVar(&c.NUMA, "numa", c.NUMA, "whether (`WHEN`) to tell the kubelet NUMA nodes: off, on or auto")
	f.BoolVar(&c.PreStartCheck, "pre-start-check", c.PreStartCheck, "check the LPUs again before each start of a container")
	f.BoolVar(&c.Overlap, "overlap", c.Overlap, "register while another instance still serves (kubelet 1.37 or later)")
	f.StringVar(&c.Interval, "interval", c.Interval, "`TIME` between two looks at the LPUs")
	f.StringVar(&c.PodResources, "pod-resources", c.PodResources,
		"ask the kubelet behind `SOCKET` which pods have LPUs, for the metrics (without =SOCKET: "+plugin.DefaultPodResources+")")
	f.Lookup("pod-resources").NoOptDefVal = plugin.DefaultPodResources
	f.StringVar(&c.Listen, "listen", c.Listen, "`ADDRESS` of /healthz, /readyz and /metrics; empty: none")
	f.StringVar(&c.NFD, "nfd", c.NFD, "feature `FILE` under the root to write for node-feature-discovery; empty: none")
	f.StringVar(&c.NFDExpiry, "nfd-expiry", c.NFDExpiry, "`TIME` for which the feature file counts if it is not written again")
	return f
}

// serveFlags gives the command the flags of its config, with the defaults for the help to show.
func serveFlags(cmd *cobra.Command) {
	d := defaultServe()
	d.flags().VisitAll(func(f *pflag.Flag) {
		fromEnvironment(f)
		cmd.Flags().AddFlag(f)
	})
	complete(cmd, "device-list-strategy", string(plugin.CDI), string(plugin.DeviceSpecs))
	complete(cmd, "on-cdi-off", string(plugin.FailOnCDIOff), string(plugin.WarnOnCDIOff), string(plugin.SpecsOnCDIOff))
	complete(cmd, "numa", string(plugin.NUMAOff), string(plugin.NUMAOn), string(plugin.NUMAAuto))
	_ = cmd.MarkFlagDirname("plugin-dir")
	_ = cmd.MarkFlagFilename("nfd")
}

// serveConfig is the configuration of the file, overridden by the flags that were given, and what the plugin needs of it.
func (a *app) serveConfig(cmd *cobra.Command) (c ServeConfig, options plugin.Options, err error) {
	file, err := a.locateSpec()
	if err != nil {
		return c, options, err
	}
	c = a.config.Serve
	overrides := c.flags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if overrides.Lookup(f.Name) != nil {
			_ = overrides.Set(f.Name, f.Value.String()) // of the same type, which has taken it before
		}
	})
	if faults := c.check(); len(faults) > 0 {
		err = usage("serve.%s: %s", faults[0].Path, faults[0].Message)
	}
	return c, plugin.Options{
		Strategy: plugin.Strategy(c.DeviceListStrategy), Kind: a.config.CDI.Kind, Annotations: a.config.CDI.Annotations, Spec: file,
		RequireConnected: c.RequireConnected, NUMA: plugin.NUMA(c.NUMA), PreStart: c.PreStartCheck,
		OnCDIOff: plugin.OnCDIOff(c.OnCDIOff),
	}, err
}

// check finds values that the types allow and serve cannot use.
func (c *ServeConfig) check() []strictyaml.Fault {
	var faults []strictyaml.Fault
	fault := func(key string, err error, remedy string) {
		if err != nil {
			faults = append(faults, strictyaml.Fault{Path: key, Message: err.Error(), Remedy: remedy})
		}
	}
	fault("deviceListStrategy", plugin.Strategy(c.DeviceListStrategy).Validate(), "write one of these")
	fault("onCdiOff", plugin.OnCDIOff(c.OnCDIOff).Validate(), "write one of these")
	fault("numa", plugin.NUMA(c.NUMA).Validate(), "write one of these")
	fault("resource", plugin.ValidateResource(c.Resource), "write "+plugin.DefaultResource)
	if d, err := time.ParseDuration(c.Interval); err != nil || d < 100*time.Millisecond || d > 10*time.Second {
		fault("interval", fmt.Errorf("%q is not a time between 100ms and 10s", c.Interval), "write 1s")
	}
	if !path.IsAbs(c.PluginDir) {
		fault("pluginDir", fmt.Errorf("%q is not an absolute path", c.PluginDir), "write "+defaultServe().PluginDir)
	}
	if c.PodResources != "" && !path.IsAbs(c.PodResources) {
		fault("podResources", fmt.Errorf("%q is not an absolute path", c.PodResources), "write "+plugin.DefaultPodResources)
	}
	if c.Listen != "" {
		fault("listen", checkAddress(c.Listen), "write "+defaultServe().Listen+" or HOST:PORT")
	}
	fault("nfd", checkFeatureFile(c.NFD), "write "+defaultFeatureFile)
	if d, err := time.ParseDuration(c.NFDExpiry); err != nil || d < time.Minute || d > 7*24*time.Hour {
		fault("nfdExpiry", fmt.Errorf("%q is not a time between 1m and 168h", c.NFDExpiry), "write "+defaultServe().NFDExpiry)
	}
	return faults
}

// checkAddress returns an error if nobody can listen at an address because of its form.
func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// configInterval is how often serve looks whether the config file has changed. Nobody can send a signal to a pod that has no shell.
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

// look tells whether the file has changed since it was read last, and not since the look before: it may be half-way written, or away for
// a moment while an editor writes it anew.
func (f *configFile) look() (changed bool) {
	before := f.seen
	f.seen = f.app.configState()
	changed = f.seen != f.inPlace && f.seen == before
	if changed {
		f.inPlace = f.seen
	}
	return changed
}

// configState changes when the config file does, or what a link in its path leads to, as in a volume of a ConfigMap. It is "" if there is
// none.
func (a *app) configState() string {
	name := a.configFile
	if name == "" {
		name, _ = a.root.Resolve(defaultConfigFile) // the error comes when it is read
	}
	return host.State(name)
}

// reload reads the config file again. If it has faults, all stays as it is.
func (a *app) reload(cmd *cobra.Command) (ServeConfig, plugin.Options, error) {
	old := a.config
	a.config = nil
	c, options, err := a.serveConfig(cmd)
	if err == nil {
		err = a.checkNetwork(c)
	}
	if err != nil {
		a.config = old
		a.log.Error("the config file has faults; everything stays as it is", "error", err)
	} else {
		a.log.Info("read the config file again", "file", a.config.file)
	}
	return c, options, err
}
