package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

func newServeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hand out LPUs to Kubernetes pods: the device plugin",
		Long: `serve registers the LPUs of this node with the kubelet as ` + plugin.DefaultResource + `, reports their health, prefers LPUs that are
connected and hands them to containers as CDI devices. It keeps itself registered whatever happens to the kubelet.
It writes the CDI spec only if what is there does not name the right nodes, and leaves it when it ends. In a sandbox it ends,
to be started again, when a directory that it writes to was made anew outside.

SIGHUP reads the config file again; a bad file changes nothing. /healthz, /readyz and, for Prometheus, /metrics are served
on --listen.

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
	if err := a.setUpLog(); err != nil {
		return err
	}
	c, options, err := a.serveConfig(cmd)
	if err != nil {
		return err
	}
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	s := &servant{app: a, plugin: plugin.New(options, a.log), lost: make(chan error)}
	ctx, cancel := context.WithCancel(cmd.Context())
	err = s.run(ctx, c, options)
	for err == nil && ctx.Err() == nil {
		select {
		case <-hangUp:
			c, options = a.reload(cmd, c, options)
			s.plugin.Reload(ctx, options)
			err = s.run(ctx, c, options)
		case err = <-s.lost:
		case <-ctx.Done():
		}
	}
	cancel()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	s.registration.end()
	a.log.Info("ended; the CDI spec stays")
	return err
}

// reload reads the config file again. If it has faults, all stays as it is.
func (a *app) reload(cmd *cobra.Command, c ServeConfig, options plugin.Options) (ServeConfig, plugin.Options) {
	old := a.config
	a.config = nil
	newC, newOptions, err := a.serveConfig(cmd)
	if err != nil {
		a.config = old
		a.log.Error("the config file has faults; everything stays as it is", "error", err)
		return c, options
	}
	a.log.Info("read the config file again", "file", a.config.file)
	return newC, newOptions
}

// servant runs the parts of serve. Each goes on through a reload unless what it was started for has changed: so no card's
// health is forgotten and the kubelet notices nothing.
type servant struct {
	app    *app
	plugin *plugin.Plugin
	server *plugin.Server
	lost   chan error // why serve cannot go on

	watch, guard, registration, http part
}

// part is a goroutine and what it was started for.
type part struct {
	purpose any
	cancel  context.CancelFunc
	ended   chan struct{}
}

// run starts a part, in place of the one that runs if that has another purpose.
func (p *part) run(ctx context.Context, purpose any, run func(context.Context)) {
	if p.cancel != nil && reflect.DeepEqual(p.purpose, purpose) {
		return
	}
	p.end()
	ctx, p.cancel = context.WithCancel(ctx)
	ended := make(chan struct{})
	p.purpose, p.ended = purpose, ended
	go func() {
		defer close(ended)
		run(ctx)
	}()
}

// end ends a part that runs.
func (p *part) end() {
	if p.cancel != nil {
		p.cancel()
		<-p.ended
	}
}

// What parts are started for.
type (
	watching struct {
		options  discovery.Options
		interval string
	}
	directories  struct{ plugins, spec string }
	registration struct {
		dir, resource     string
		overlap, preStart bool
	}
	listening struct {
		registration
		address string
	}
)

// run has the parts run with a configuration.
func (s *servant) run(ctx context.Context, c ServeConfig, options plugin.Options) error {
	scan, err := s.app.scanOptions(discovery.Options{})
	if err != nil {
		return err
	}
	dir, err := s.app.root.Resolve(c.PluginDir)
	if err != nil {
		return err
	}
	w := watching{scan, c.Interval}
	s.watch.run(ctx, w, func(ctx context.Context) { s.look(ctx, w) })
	d := directories{plugins: dir}
	if options.Strategy == plugin.CDI {
		d.spec = filepath.Dir(options.Spec.Path)
	}
	s.guard.run(ctx, d, func(ctx context.Context) { s.keep(ctx, d) })
	r := registration{dir, c.Resource, c.Overlap, c.PreStartCheck}
	if s.registration.purpose != r {
		s.server = &plugin.Server{Plugin: s.plugin, Dir: dir, Resource: c.Resource, Overlap: c.Overlap, Log: s.app.log}
	}
	server := s.server
	s.registration.run(ctx, r, server.Run)
	s.http.run(ctx, listening{r, c.Listen}, func(ctx context.Context) { s.app.listen(ctx, c.Listen, server) })
	return nil
}

// look tells the plugin of the machine, and systemd that it does.
func (s *servant) look(ctx context.Context, w watching) {
	interval, _ := time.ParseDuration(w.interval) // checked before
	started := false
	discovery.Watch(ctx, string(s.app.root), w.options, interval, func(inv *discovery.Inventory, took time.Duration, err error) {
		s.plugin.Node.Scanned(took, err)
		if err != nil {
			return
		}
		s.plugin.Update(ctx, inv)
		if !started { // the kubelet may be away for long: that is no failure to start
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		}
		started = true
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
	})
}

// keep ends serve when a directory that it writes to is out of reach. It must always be able to write to the kubelet's; to
// that of the spec it need not, where something else keeps the spec up to date.
func (s *servant) keep(ctx context.Context, d directories) {
	writable := []string{d.plugins}
	if d.spec != "" && outOfReach(d.spec) == nil {
		writable = append(writable, d.spec)
	}
	for ctx.Err() == nil {
		for _, dir := range writable {
			if err := outOfReach(dir); err != nil {
				select {
				case s.lost <- err:
				case <-ctx.Done():
				}
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// outOfReach tells whether a directory was removed or made anew since a sandbox was set up around this process. In a
// container it stays the removed one (no name left, st_nlink in stat(2)); in a unit's it becomes as read-only as all the rest.
// Nothing mends that from within.
func outOfReach(dir string) error {
	var stat unix.Stat_t
	var fault string
	switch {
	case unix.Stat(dir, &stat) == nil && stat.Nlink == 0:
		fault = "has been removed, and its successor cannot be seen from this mount namespace"
	case errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS):
		fault = "is read-only in this mount namespace"
	default:
		return nil
	}
	return &exitError{
		code: exitFailed, err: fmt.Errorf("%s: %s", dir, fault),
		hint: "start it again, as systemd and the kubelet do, and it sees the directory that is there by then; if that is read-only, remount it",
	}
}
