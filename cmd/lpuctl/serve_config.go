package main

import (
	"fmt"
	"net"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// ServeConfig says how `lpuctl serve` hands out LPUs.
type ServeConfig struct {
	Resource           string `json:"resource"`
	PluginDir          string `json:"pluginDir"` // path under the root
	DeviceListStrategy string `json:"deviceListStrategy"`
	RequireConnected   bool   `json:"requireConnected"`
	NUMA               string `json:"numa"`
	PreStartCheck      bool   `json:"preStartCheck"`
	Overlap            bool   `json:"overlap"`
	Interval           string `json:"interval"`
	Listen             string `json:"listen"` // TCP address of /healthz, /readyz and /metrics; "": none
}

func defaultServe() ServeConfig {
	return ServeConfig{
		Resource: plugin.DefaultResource, PluginDir: "/var/lib/kubelet/device-plugins", DeviceListStrategy: string(plugin.CDI),
		NUMA: string(plugin.NUMAOff), Interval: "1s", Listen: ":9477",
	}
}

// serveFlags are the flags that stand for a key of serve in the config file. Their defaults are shown and not used: a
// flag that is not given leaves the file's value.
func serveFlags(cmd *cobra.Command) {
	f, d := cmd.Flags(), defaultServe()
	f.String("resource", d.Resource, "extended `RESOURCE` that pods ask for")
	f.String("plugin-dir", d.PluginDir, "`DIR` under the root with the sockets of the kubelet and its plugins")
	f.String("device-list-strategy", d.DeviceListStrategy, "`STRATEGY` by which containers get LPUs: cdi-cri or device-specs")
	f.Bool("require-connected", d.RequireConnected, "refuse a pod rather than give it LPUs that are not connected")
	f.String("numa", d.NUMA, "whether (`WHEN`) to tell the kubelet NUMA nodes: off, on or auto")
	f.Bool("pre-start-check", d.PreStartCheck, "check the LPUs again before each start of a container")
	f.Bool("overlap", d.Overlap, "register while another instance still serves (kubelet 1.37 or later)")
	f.String("interval", d.Interval, "`TIME` between two looks at the LPUs")
	f.String("listen", d.Listen, "`ADDRESS` of /healthz, /readyz and /metrics; empty: none")
	for name := range serveKeys(&d) {
		fromEnvironment(f.Lookup(name))
	}
	complete(cmd, "device-list-strategy", string(plugin.CDI), string(plugin.DeviceSpecs))
	complete(cmd, "numa", string(plugin.NUMAOff), string(plugin.NUMAOn), string(plugin.NUMAAuto))
	_ = cmd.MarkFlagDirname("plugin-dir")
}

// serveKeys are the values of c by the flags that set them, and their keys in the config file.
func serveKeys(c *ServeConfig) map[string]serveKey {
	return map[string]serveKey{
		"resource": {"resource", &c.Resource, nil}, "plugin-dir": {"pluginDir", &c.PluginDir, nil},
		"device-list-strategy": {"deviceListStrategy", &c.DeviceListStrategy, nil}, "numa": {"numa", &c.NUMA, nil},
		"interval": {"interval", &c.Interval, nil}, "listen": {"listen", &c.Listen, nil},
		"require-connected": {"requireConnected", nil, &c.RequireConnected}, "pre-start-check": {"preStartCheck", nil, &c.PreStartCheck},
		"overlap": {"overlap", nil, &c.Overlap},
	}
}

type serveKey struct {
	key  string
	text *string
	flag *bool
}

// serveConfig is the configuration with the flags that were given laid over it, and what the plugin needs of it.
func (a *app) serveConfig(cmd *cobra.Command) (ServeConfig, plugin.Options, error) {
	file, err := a.locateSpec()
	if err != nil {
		return ServeConfig{}, plugin.Options{}, err
	}
	c := a.config.Serve
	for name, key := range serveKeys(&c) {
		f := cmd.Flags().Lookup(name)
		switch {
		case !f.Changed:
		case key.text != nil:
			*key.text = f.Value.String()
		default:
			*key.flag = f.Value.String() == "true"
		}
	}
	if faults := c.check(); len(faults) > 0 {
		err = usage("serve.%s: %s", faults[0].Path, faults[0].Message)
	}
	return c, plugin.Options{
		Strategy: plugin.Strategy(c.DeviceListStrategy), Kind: a.config.CDI.Kind, Annotations: a.config.CDI.Annotations, Spec: file,
		RequireConnected: c.RequireConnected, NUMA: plugin.NUMA(c.NUMA), PreStart: c.PreStartCheck,
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
	_, err := plugin.ParseStrategy(c.DeviceListStrategy)
	fault("deviceListStrategy", err, "write one of these")
	_, err = plugin.ParseNUMA(c.NUMA)
	fault("numa", err, "write one of these")
	fault("resource", plugin.ValidateResource(c.Resource), "write "+plugin.DefaultResource)
	if d, err := time.ParseDuration(c.Interval); err != nil || d < 100*time.Millisecond || d > 10*time.Second {
		fault("interval", fmt.Errorf("%q is not a time between 100ms and 10s", c.Interval), "write 1s")
	}
	if !path.IsAbs(c.PluginDir) {
		fault("pluginDir", fmt.Errorf("%q is not an absolute path", c.PluginDir), "write "+defaultServe().PluginDir)
	}
	if c.Listen != "" {
		_, port, err := net.SplitHostPort(c.Listen)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		fault("listen", err, "write "+defaultServe().Listen+" or HOST:PORT")
	}
	return faults
}
