package plugin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Times of registering. The kubelet answers Register only after it has connected to the
// plugin, which it tries for ten seconds.
const (
	registerTimeout = 15 * time.Second
	streamTimeout   = 10 * time.Second // from a successful Register to the first list
	pollInterval    = time.Second      // for what inotify may have missed
	// Each loop of the server turns within turnLimit, whatever the kubelet does.
	turnLimit  = time.Minute
	minBackoff = 100 * time.Millisecond // before the next attempt; it doubles with each that fails
	maxBackoff = 10 * time.Second
)

// Server keeps a plugin registered with the kubelet of this node.
type Server struct {
	Plugin   *Plugin
	Dir      string // of the kubelet's and the plugins' sockets: /var/lib/kubelet/device-plugins
	Resource string // that pods ask for
	// Overlap registers while another instance still serves, so that an upgrade leaves no
	// gap. That needs a kubelet of 1.37 or later, which knows plugins by their socket. An
	// older one knows them by their resource: when the old instance ends, it takes the
	// new one for ended too. Without Overlap a new instance waits until the old one has
	// ended.
	Overlap bool
	Log     *slog.Logger

	phase    atomic.Value // what it does now, as a string; nil before Run
	openedAt atomic.Int64 // when the kubelet was sent the first list, in milliseconds of Unix time
	pulse    node.Pulse   // of Run
	pods     podReader
	rivals   rivals
}

// The phases of a server.
const (
	phaseWaiting    = "waiting for the kubelet"
	phaseStandby    = "standing by: another instance serves"
	phaseRegistered = "registered"
)

// Ready returns "registered" if the kubelet has the list of LPUs from this instance, and
// "standing by: " with the reason if another one serves it; or else why the server is not
// ready. While the DRA driver hands out the LPUs it is ready to come after it, and says
// so.
func (s *Server) Ready() (phase string, err error) {
	if err := s.Plugin.Node.Ready(); err != nil {
		return "", err
	}
	phase, _ = s.phase.Load().(string)
	var elsewhere *finding.Finding
	if gate := s.Plugin.Node.Gate; gate != nil {
		elsewhere = gate.Look().All()
	}
	switch ready := phase == phaseRegistered || phase == phaseStandby; {
	case ready && elsewhere == nil:
		return phase, nil
	case ready && elsewhere.ID == finding.OwnerDRA:
		return phase + ": " + elsewhere.Message, nil
	case ready:
		return "", errors.New(elsewhere.Message)
	}
	return "", errors.New(cmp.Or(phase, "starting"))
}

// Alive returns errors that name the loops which do not turn any more: a new start mends
// them. That the kubelet does not answer is none.
func (s *Server) Alive() error {
	now := time.Now()
	return errors.Join(s.Plugin.Node.Alive(), s.pulse.Alive("keeps the plugin registered", now, turnLimit),
		s.pods.pulse.Alive("asks the kubelet for pods", now, turnLimit))
}

// pathMax is the greatest length of a socket's path in bytes (unix(7), sun_path).
const pathMax = 107

// socketPrefix begins the names of our sockets: lpuctl-RANDOM.sock.
const socketPrefix = owner.SocketPrefix

// restart is the error for a sign that the kubelet was restarted. After it no backoff is
// needed.
type restart string

func (r restart) Error() string { return string(r) }

// Run serves and registers, again whenever the kubelet may have forgotten the plugin,
// until ctx ends. It never gives up, and logs an error once as long as it stays the same.
func (s *Server) Run(ctx context.Context) {
	backoff, logged := minBackoff, ""
	defer s.pulse.Rest()
	for ctx.Err() == nil {
		s.beat()
		changes, stop := watchDir(s.Dir)
		started := time.Now()
		err := s.once(ctx, changes)
		s.beat()
		was := s.phase.Swap(phaseWaiting)
		switch why := withoutSocket(err); {
		case ctx.Err() != nil:
		case was == phaseRegistered:
			s.Log.Info("registering anew", "reason", why)
			logged = ""
		case why != logged:
			s.Log.Warn("not registered", "error", why)
			logged = why
		}
		if time.Since(started) > maxBackoff {
			backoff = minBackoff
		}
		if _, restarted := errors.AsType[restart](err); restarted || waitForChange(ctx, changes, backoff+mathrand.N(backoff/2)) {
			backoff = minBackoff
		} else {
			backoff = min(2*backoff, maxBackoff)
		}
		stop()
	}
}

func (s *Server) beat() { s.pulse.Beat(time.Now()) }

var socketName = lazy.Regexp(socketPrefix + `[a-z0-9]+\.sock`)

// withoutSocket is the text of an error without the random part of our socket's name, so
// that texts can be compared.
func withoutSocket(err error) string {
	return socketName().ReplaceAllString(err.Error(), socketPrefix+"*.sock")
}

// once serves on a new socket, registers it and waits for a reason to register again,
// which it returns as an error.
func (s *Server) once(ctx context.Context, changes *fsnotify.Watcher) error {
	if err := s.waitForOthers(ctx, changes); err != nil {
		return err
	}
	kubelet := filepath.Join(s.Dir, "kubelet.sock")
	before, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	sock, err := s.listen()
	if err != nil {
		return err
	}
	defer sock.stop()
	if err := s.register(ctx, kubelet, sock); err != nil {
		s.Plugin.metrics.registrations.Add(1, "result", "failure")
		return err
	}
	s.Plugin.metrics.registrations.Add(1, "result", "success")
	return s.waitForRestart(ctx, changes, sock, before)
}

// waitForOthers removes the sockets of instances that are dead. It waits until there is a
// list of devices and, unless Overlap is set, until no other instance is alive.
func (s *Server) waitForOthers(ctx context.Context, changes *fsnotify.Watcher) error {
	for ctx.Err() == nil {
		s.beat()
		live := s.siblings("")
		if (s.Overlap || len(live) == 0) && s.Plugin.listed() {
			return nil
		}
		if len(live) > 0 && !s.Overlap && s.phase.Swap(phaseStandby) != phaseStandby {
			s.Log.Info("another instance serves; waiting for its end", "socket", filepath.Base(live[0]))
		}
		waitForChange(ctx, changes, pollInterval/5)
	}
	return ctx.Err()
}

// siblings returns the sockets of other instances that accept connections; own is the
// socket of this one. Sockets that refuse connections are removed.
func (s *Server) siblings(own string) (live []string) {
	sockets, _ := filepath.Glob(filepath.Join(s.Dir, socketPrefix+"*.sock"))
	for _, path := range sockets {
		if path == own {
			continue
		}
		listens, unseen := host.Listens(path)
		switch {
		case listens:
			live = append(live, path)
		case unseen == nil:
			_ = os.Remove(path)
		}
	}
	return live
}

// Recall asks another instance which devices it offers as healthy, by their ids. It is
// empty if there is none that answers within a second.
func (s *Server) Recall(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	healthy := map[string]bool{}
	for _, path := range s.siblings("") {
		conn, err := dial(path)
		if err != nil {
			continue
		}
		if stream, err := api.NewDevicePluginClient(conn).ListAndWatch(ctx, &api.Empty{}); err == nil {
			if list, err := stream.Recv(); err == nil {
				for _, d := range list.Devices {
					healthy[d.ID] = d.Health == api.Healthy
				}
			}
		}
		_ = conn.Close()
	}
	return healthy
}

func dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// listed reports whether there is a list of devices to send: the machine was read, and
// the health of each LPU is known or was waited for.
func (p *Plugin) listed() bool { return p.state.Load().Settled }

// socket is one gRPC server on a socket of its own. Each registration needs a new name:
// kubelets from 1.37 on refuse one that they know ("already connected").
type socket struct {
	path    string
	server  *grpc.Server
	opened  chan struct{} // closed when the first list was sent to the kubelet
	ended   chan struct{} // closed when no stream is left
	streams atomic.Int32

	openOnce, endOnce sync.Once
}

func (s *Server) listen() (*socket, error) {
	sock := &socket{
		path:   filepath.Join(s.Dir, socketPrefix+strings.ToLower(rand.Text()[:10])+".sock"),
		opened: make(chan struct{}), ended: make(chan struct{}),
	}
	if len(sock.path) > pathMax {
		return nil, fmt.Errorf("%s: too long for the path of a socket (%d bytes, at most %d)", sock.path, len(sock.path), pathMax)
	}
	// It gets its name when it accepts connections: another instance removes a socket of
	// ours that refuses them.
	nameless := strings.TrimSuffix(sock.path, ".sock") + ".new"
	listener, err := net.Listen("unix", nameless)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(nameless, sock.path); err != nil {
		_ = listener.Close()
		return nil, err
	}
	sock.server = grpc.NewServer(grpc.StreamInterceptor(sock.countStreams), grpc.UnaryInterceptor(s.Plugin.countCalls))
	api.RegisterDevicePluginServer(sock.server, s.Plugin)
	// It serves until stop. If the listener breaks, the stream ends.
	go func() { _ = sock.server.Serve(listener) }()
	return sock, nil
}

// countStreams closes opened when ListAndWatch has sent a list, and ended when no such
// call is left.
func (k *socket) countStreams(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	k.streams.Add(1)
	err := handler(server, sending{stream, k})
	if k.streams.Add(-1) == 0 {
		k.endOnce.Do(func() { close(k.ended) })
	}
	return err
}

// sending is a stream that tells its socket of the first list that it sent.
type sending struct {
	grpc.ServerStream
	socket *socket
}

// SendMsg sends a message, and notes that one was sent.
func (s sending) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.socket.openOnce.Do(func() { close(s.socket.opened) })
	}
	return err
}

// stop ends all calls and removes the socket.
func (k *socket) stop() {
	k.server.Stop()
	_ = os.Remove(k.path)
}

func (s *Server) register(ctx context.Context, kubelet string, sock *socket) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(kubelet)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	options, _ := s.Plugin.GetDevicePluginOptions(ctx, nil) // which never fails
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(sock.path), ResourceName: s.Resource, Options: options,
	})
	return err
}

// waitForRestart waits until the kubelet may have forgotten the plugin, and returns the
// sign of that: a new kubelet.sock, our own socket gone, the stream ended, or no stream
// at all. inotify tells at once; the poll finds what it missed. When another instance
// ends, the list is sent again: the last one that the kubelet got may be the other's.
func (s *Server) waitForRestart(ctx context.Context, changes *fsnotify.Watcher, sock *socket, kubelet os.FileInfo) error {
	opened, noStream, tick := sock.opened, time.After(streamTimeout), (<-chan time.Time)(nil)
	others := s.siblings(sock.path)
	for {
		s.beat()
		if tick == nil {
			tick = time.After(host.UntilBeat(pollInterval, host.SinceBoot()))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-opened:
			opened, noStream = nil, nil
			s.openedAt.Store(time.Now().UnixMilli())
			s.phase.Store(phaseRegistered)
			s.Log.Info("registered", "resource", s.Resource, "socket", filepath.Base(sock.path))
		case <-noStream:
			return errors.New("the kubelet opened no stream")
		case <-sock.ended:
			return errors.New("the kubelet ended the stream")
		case <-changes.Events:
		case err := <-changes.Errors:
			s.Log.Debug("changes of the kubelet's directory may have been missed", "error", err)
		case <-tick:
			tick = nil
		}
		before := others
		others = s.siblings(sock.path)
		if slices.ContainsFunc(before, func(path string) bool { return !slices.Contains(others, path) }) {
			go s.Plugin.resend() // which may have to wait for a scan
		}
		if now, err := os.Stat(filepath.Join(s.Dir, "kubelet.sock")); err == nil && !sameSocket(now, kubelet) {
			return restart("there is a new kubelet.sock")
		}
		if _, err := os.Stat(sock.path); errors.Is(err, fs.ErrNotExist) {
			return restart("its own socket is gone")
		}
	}
}

// sameSocket compares by inode and time, because a new file may get the inode number of
// one that was just removed.
func sameSocket(a, b os.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

// watchDir watches a directory or, as long as it does not exist, the nearest parent that
// does. After an error, such as an overflow of the kernel's queue, changes may have been
// missed. It reports no more of them until the error is received. The channels are nil if
// there is no inotify.
func watchDir(dir string) (changes *fsnotify.Watcher, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return &fsnotify.Watcher{}, func() {}
	}
	for watcher.Add(dir) != nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return watcher, func() { _ = watcher.Close() }
}

// waitForChange waits no longer than limit for a change of anything but our own sockets,
// and reports whether there was one.
func waitForChange(ctx context.Context, changes *fsnotify.Watcher, limit time.Duration) bool {
	expired := time.After(limit)
	for {
		select {
		case err := <-changes.Errors:
			return err != nil
		case e := <-changes.Events:
			if !strings.HasPrefix(filepath.Base(e.Name), socketPrefix) {
				return true
			}
		case <-expired:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
