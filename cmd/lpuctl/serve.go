package main

import (
	"cmp"
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

func (a *app) serve(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("log-level") { // a daemon tells what it does
		a.logLevel = "info"
	}
	if err := cmp.Or(a.setUpLog(), a.loadConfig()); err != nil {
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
