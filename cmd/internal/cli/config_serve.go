package cli

import (
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/hyperaccel/lpuctl/internal/node"
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
	Listen             string `json:"listen"` // TCP address of /healthz, /readyz, /metrics; "": none
	// PodResources is the socket under the root where the kubelet reports which pods have
	// LPUs; "": it is not asked.
	PodResources string `json:"podResources"`
	NFD          string `json:"nfd"`       // path under the root of the feature file; "": none
	NFDExpiry    string `json:"nfdExpiry"` // for how long what stands in it counts
}

// DefaultServe is how serve hands out LPUs where nothing else is said.
func DefaultServe() ServeConfig {
	return ServeConfig{
		Resource: plugin.DefaultResource, PluginDir: "/var/lib/kubelet/device-plugins", DeviceListStrategy: string(plugin.CDI),
		OnCDIOff: string(node.WarnOnCDIOff), NUMA: string(plugin.NUMAOff), Interval: "1s", Listen: ":9477",
		NFDExpiry: "1h",
	}
}

// Flags are those that stand for a key: one that is set sets the key of c.
func (c *ServeConfig) Flags() *pflag.FlagSet {
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

// Check finds values that the types allow and serve cannot use.
func (c *ServeConfig) Check() (faults strictyaml.Faults) {
	fault := func(key string, err error, remedy string) {
		if err != nil {
			faults.Add(key, err.Error(), remedy)
		}
	}
	fault("deviceListStrategy", plugin.Strategy(c.DeviceListStrategy).Validate(), "write one of these")
	fault("onCdiOff", node.OnCDIOff(c.OnCDIOff).Validate(), "write one of these")
	fault("numa", plugin.NUMA(c.NUMA).Validate(), "write one of these")
	fault("resource", plugin.ValidateResource(c.Resource), "write "+plugin.DefaultResource)
	fault("interval", checkTime(c.Interval, 100*time.Millisecond, 10*time.Second), "write 1s")
	if !path.IsAbs(c.PluginDir) {
		fault("pluginDir", fmt.Errorf("%q is not an absolute path", c.PluginDir), "write "+DefaultServe().PluginDir)
	}
	if c.PodResources != "" && !path.IsAbs(c.PodResources) {
		fault("podResources", fmt.Errorf("%q is not an absolute path", c.PodResources), "write "+plugin.DefaultPodResources)
	}
	if c.Listen != "" {
		fault("listen", CheckAddress(c.Listen), "write "+DefaultServe().Listen+" or HOST:PORT")
	}
	fault("nfd", checkFeatureFile(c.NFD), "write "+defaultFeatureFile)
	fault("nfdExpiry", checkTime(c.NFDExpiry, time.Minute, 7*24*time.Hour), "write "+DefaultServe().NFDExpiry)
	return faults
}

// CheckAddress returns an error if no program can listen at an address because of its
// form.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// defaultFeatureFile is where node-feature-discovery looks, if nothing else was agreed.
const defaultFeatureFile = "/etc/kubernetes/node-feature-discovery/features.d/lpuctl"

// checkFeatureFile returns an error if a path cannot be that of a feature file.
func checkFeatureFile(name string) error {
	switch {
	case name == "":
		return nil
	case !path.IsAbs(name) || path.Clean(name) != name || name == "/":
		return fmt.Errorf("%q is not the absolute path of a file", name)
	case strings.HasPrefix(path.Base(name), "."):
		return fmt.Errorf("%q begins with a dot: node-feature-discovery passes over such a file", path.Base(name))
	}
	return nil
}
