package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
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
	Listen             string `json:"listen"` // address of /healthz and /readyz; "": none
}

func defaultServe() ServeConfig {
	return ServeConfig{
		Resource: plugin.DefaultResource, PluginDir: "/var/lib/kubelet/device-plugins", DeviceListStrategy: string(plugin.CDI),
		NUMA: string(plugin.NUMAOff), Interval: "1s", Listen: ":9477",
	}
}

func newServeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hand out LPUs to Kubernetes pods: the device plugin",
		Long: `serve registers the LPUs of this node with the kubelet as ` + plugin.DefaultResource + `, reports their health, prefers LPUs that are
connected and hands them to containers as CDI devices. It keeps itself registered whatever happens to the kubelet.
It writes the CDI spec only if what is there does not name the right nodes, and leaves it when it ends.

SIGHUP reads the config file again; a bad file changes nothing. /healthz and /readyz are served on --listen.

--numa tells the kubelet the NUMA node of each LPU. With a Topology Manager policy it then takes LPUs of one node without
asking which are connected, so it is off by default; auto does it only where no ring crosses NUMA nodes.
--overlap lets a new instance register while the old one still serves (DaemonSet with maxSurge). It needs a kubelet of
1.37 or later; without it the new instance waits for the old one's end.`,
		Example: `  lpuctl serve
  lpuctl serve --require-connected --log-format json
  lpuctl serve --device-list-strategy device-specs    # for a runtime without CDI
  lpuctl serve --root /host                           # in a container that has the host's directories there`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.serve(cmd) },
	}
	serveFlags(cmd)
	a.specDirFlag(cmd)
	a.ringTableFlag(cmd)
	return cmd
}

// serveFlags are the flags that stand for a key of serve in the config file. Their defaults are shown and not used: a
// flag that is not given leaves the file's value.
func serveFlags(cmd *cobra.Command) {
	f, d := cmd.Flags(), defaultServe()
	f.String("resource", d.Resource, "extended `RESOURCE` that pods ask for")
	f.String("plugin-dir", d.PluginDir, "`DIR` under the root with the sockets of the kubelet and its plugins")
	f.String("device-list-strategy", d.DeviceListStrategy, "how containers get LPUs: cdi-cri or device-specs")
	f.Bool("require-connected", d.RequireConnected, "refuse a pod rather than give it LPUs that are not connected")
	f.String("numa", d.NUMA, "tell the kubelet NUMA nodes: off, on or auto")
	f.Bool("pre-start-check", d.PreStartCheck, "check the LPUs again before each start of a container")
	f.Bool("overlap", d.Overlap, "register while another instance still serves (kubelet 1.37 or later)")
	f.String("interval", d.Interval, "how often the LPUs are looked at")
	f.String("listen", d.Listen, "`ADDRESS` of /healthz and /readyz; empty: none")
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

// serveConfig is the configuration with the flags that were given laid over it.
func (a *app) serveConfig(cmd *cobra.Command) (ServeConfig, error) {
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
		return c, usage("serve.%s: %s", faults[0].key, faults[0].message)
	}
	return c, nil
}

// serveFault is a value that does not do.
type serveFault struct{ key, message, remedy string }

func (c *ServeConfig) check() []serveFault {
	var faults []serveFault
	options := plugin.Options{Strategy: plugin.Strategy(c.DeviceListStrategy), NUMA: plugin.NUMA(c.NUMA)}
	if err := options.Validate(); err != nil {
		key := "numa"
		if c.NUMA == string(plugin.NUMAOff) || c.NUMA == string(plugin.NUMAOn) || c.NUMA == string(plugin.NUMAAuto) {
			key = "deviceListStrategy"
		}
		faults = append(faults, serveFault{key, err.Error(), "write one of these"})
	}
	if err := plugin.ValidateResource(c.Resource); err != nil {
		faults = append(faults, serveFault{"resource", err.Error(), "write " + plugin.DefaultResource})
	}
	if d, err := time.ParseDuration(c.Interval); err != nil || d < 100*time.Millisecond || d > 10*time.Second {
		faults = append(faults, serveFault{"interval", fmt.Sprintf("%q is not a time between 100ms and 10s", c.Interval), "write 1s"})
	}
	if !isAbsolute(c.PluginDir) {
		faults = append(faults, serveFault{"pluginDir", fmt.Sprintf("%q is not an absolute path", c.PluginDir), "write " + defaultServe().PluginDir})
	}
	return faults
}

// pluginOptions is what the plugin needs of a configuration.
func (a *app) pluginOptions(c ServeConfig) (plugin.Options, error) {
	file, err := a.locateSpec()
	return plugin.Options{
		Strategy: plugin.Strategy(c.DeviceListStrategy), Kind: a.config.CDI.Kind, Spec: file,
		RequireConnected: c.RequireConnected, NUMA: plugin.NUMA(c.NUMA), PreStart: c.PreStartCheck,
	}, err
}

func (a *app) serve(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("log-level") { // a daemon tells what it does
		a.logLevel = "info"
	}
	if err := first(a.setUpLog(), a.loadConfig()); err != nil {
		return err
	}
	c, err := a.serveConfig(cmd)
	if err != nil {
		return err
	}
	options, err := a.pluginOptions(c)
	if err != nil {
		return err
	}
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	p := plugin.New(options, a.log)
	s := &servant{app: a, plugin: p}
	for cmd.Context().Err() == nil {
		again, err := s.with(cmd.Context(), c, func() bool {
			select {
			case <-hangUp:
				return true
			case <-cmd.Context().Done():
				return false
			}
		})
		if err != nil {
			return err
		}
		if again {
			c = a.reload(cmd, p, c)
		}
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	a.log.Info("ended; the CDI spec stays")
	return nil
}

// reload reads the config file again. If it has faults, all stays as it is.
func (a *app) reload(cmd *cobra.Command, p *plugin.Plugin, before ServeConfig) ServeConfig {
	old := a.config
	a.config = nil
	err := a.loadConfig()
	var c ServeConfig
	if err == nil {
		c, err = a.serveConfig(cmd)
	}
	var options plugin.Options
	if err == nil {
		options, err = a.pluginOptions(c)
	}
	if err != nil {
		a.config = old
		a.log.Error("the config file has faults; everything stays as it is", "error", err)
		return before
	}
	p.Reload(options)
	a.log.Info("read the config file again", "file", a.config.file)
	return c
}

// servant runs the parts of serve: what watches the machine can be exchanged without the kubelet noticing, what is
// registered only if it has to.
type servant struct {
	app    *app
	plugin *plugin.Plugin

	server *plugin.Server
	end    context.CancelFunc // of the server
	ended  chan struct{}
	config ServeConfig
	looked atomic.Int64 // when the machine was read last, Unix nanoseconds
}

// with runs with a configuration until wait returns.
func (s *servant) with(ctx context.Context, c ServeConfig, wait func() bool) (bool, error) {
	scan, err := s.app.scanOptions(discovery.Options{})
	if err != nil {
		return false, err
	}
	interval, _ := time.ParseDuration(c.Interval) // checked before
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go discovery.Watch(watching, s.app.root, scan, interval,
		func(inv *discovery.Inventory) {
			s.plugin.Update(watching, inv)
			if s.looked.Swap(time.Now().UnixNano()) == 0 { // the kubelet may be away for long: that is no failure to start
				_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
			}
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		},
		func(err error) { s.app.log.Error("the machine cannot be read", "error", err) })
	if err := s.register(ctx, c); err != nil {
		return false, err
	}
	again := wait()
	if !again {
		s.end()
		<-s.ended
	}
	return again, nil
}

// register starts the server, or starts another if the kubelet has to be told something new.
func (s *servant) register(ctx context.Context, c ServeConfig) error {
	before := s.config
	s.config = c
	if s.server != nil && before.Resource == c.Resource && before.PluginDir == c.PluginDir && before.Overlap == c.Overlap &&
		before.PreStartCheck == c.PreStartCheck && before.Listen == c.Listen {
		return nil
	}
	if s.server != nil {
		s.end()
		<-s.ended
	}
	dir, err := securejoin.SecureJoin(s.app.root, c.PluginDir)
	if err != nil {
		return err
	}
	ctx, s.end = context.WithCancel(ctx)
	s.ended = make(chan struct{})
	s.server = &plugin.Server{Plugin: s.plugin, Dir: filepath.Clean(dir), Resource: c.Resource, Overlap: c.Overlap, Log: s.app.log}
	server, ended := s.server, s.ended
	go func() {
		server.Run(ctx)
		close(ended)
	}()
	go s.listen(ctx, c.Listen, server)
	return nil
}

// listen serves /healthz and /readyz. That the address is taken, by an instance that is about to end for example, is
// no reason not to serve pods: it is tried again.
func (s *servant) listen(ctx context.Context, address string, server *plugin.Server) {
	if address == "" {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, server.Ready()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		var err error
		if age := time.Since(time.Unix(0, s.looked.Load())); s.looked.Load() > 0 && age > time.Minute {
			err = fmt.Errorf("the machine was read %v ago for the last time", age.Round(time.Second))
		}
		answer(w, err)
	})
	h := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = h.Close()
	}()
	for told := false; ctx.Err() == nil; told = true {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			err = h.Serve(listener)
		}
		if errors.Is(err, http.ErrServerClosed) {
			return
		}
		if !told {
			s.app.log.Warn("health is not served; pods are", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
