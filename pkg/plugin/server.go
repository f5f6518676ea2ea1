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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Limits of registering. The kubelet answers Register only after it has dialled the plugin, for which it gives itself
// ten seconds.
const (
	registerLimit = 15 * time.Second
	streamLimit   = 10 * time.Second // from a good Register to ListAndWatch
	pollInterval  = time.Second      // where inotify says nothing
	firstRetry    = 100 * time.Millisecond
	lastRetry     = 10 * time.Second
)

// Server keeps a plugin registered with the kubelet of this node.
type Server struct {
	Plugin   *Plugin
	Dir      string // of the kubelet's and the plugins' sockets: /var/lib/kubelet/device-plugins
	Resource string // that pods ask for
	// Overlap registers while another instance still serves, so that an upgrade leaves no gap. That needs a kubelet of
	// 1.37 or later, which knows plugins by socket; an older one takes the end of the old instance for that of both.
	// Without it a new instance waits for the old one's end.
	Overlap bool
	Log     *slog.Logger

	phase atomic.Value // what it does now, as a string; nil before Run
}

// The phases of a server.
const (
	phaseWaiting    = "waiting for the kubelet"
	phaseStandby    = "standing by until the instance that serves ends"
	phaseRegistered = "registered"
)

// Ready returns nil if the kubelet has the list of LPUs or another instance serves it, or else why not.
func (s *Server) Ready() error {
	if err := s.Plugin.Node.Ready(); err != nil {
		return err
	}
	phase, _ := s.phase.Load().(string)
	if phase == phaseRegistered || phase == phaseStandby {
		return nil
	}
	return errors.New(cmp.Or(phase, "starting"))
}

// pathMax is how many bytes the path of a socket can have (unix(7), sun_path).
const pathMax = 107

// socketPrefix begins the names of our sockets: lpuctl-RANDOM.sock.
const socketPrefix = "lpuctl-"

// restart is a sign that the kubelet was restarted. Registering anew need not wait then.
type restart string

func (r restart) Error() string { return string(r) }

// Run serves and registers, again whenever the kubelet may have forgotten the plugin, until ctx ends. It never gives up,
// and does not say the same twice while it tries.
func (s *Server) Run(ctx context.Context) {
	retry, told := firstRetry, ""
	for ctx.Err() == nil {
		changes, stop := watchDir(s.Dir)
		started := time.Now()
		err := s.once(ctx, changes)
		was := s.phase.Swap(phaseWaiting)
		_, restarted := errors.AsType[restart](err)
		if restarted || time.Since(started) > lastRetry {
			retry = firstRetry
		}
		switch why := withoutSocket(err); {
		case ctx.Err() != nil:
		case was == phaseRegistered:
			s.Log.Info("registering anew", "reason", why)
			told = ""
		case why != told:
			s.Log.Warn("not registered", "error", why)
			told = why
		}
		if !restarted {
			if waitForChange(ctx, changes, retry+mathrand.N(retry/2)) {
				retry = firstRetry
			} else {
				retry = min(2*retry, lastRetry)
			}
		}
		stop()
	}
}

var socketName = regexp.MustCompile(socketPrefix + `[a-z0-9]+\.sock`)

// withoutSocket is what an error says, without the name of our socket, which is another one each time.
func withoutSocket(err error) string {
	return socketName.ReplaceAllString(err.Error(), socketPrefix+"*.sock")
}

// once serves on a new socket, registers it and stays until there is a reason to register anew, which is the error.
func (s *Server) once(ctx context.Context, changes <-chan fsnotify.Event) error {
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
	err = s.register(ctx, kubelet, sock)
	s.Plugin.metrics.registered(err)
	if err != nil {
		return err
	}
	return s.attend(ctx, changes, sock, before)
}

// waitForOthers removes sockets of instances that are dead and, unless overlap is allowed, waits for the end of those
// that are not; and until there is something to list.
func (s *Server) waitForOthers(ctx context.Context, changes <-chan fsnotify.Event) error {
	for ctx.Err() == nil {
		live := s.liveSiblings()
		if (s.Overlap || live == "") && s.Plugin.listed() {
			return nil
		}
		if live != "" && !s.Overlap && s.phase.Swap(phaseStandby) != phaseStandby {
			s.Log.Info("another instance serves; waiting for its end", "socket", filepath.Base(live))
		}
		waitForChange(ctx, changes, pollInterval/5)
	}
	return ctx.Err()
}

// liveSiblings is a socket of another instance that answers. Those that do not are removed.
func (s *Server) liveSiblings() string {
	sockets, _ := filepath.Glob(filepath.Join(s.Dir, socketPrefix+"*.sock"))
	live := ""
	for _, path := range sockets {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
			live = path
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
	return live
}

// listed tells whether there is a list to send.
func (p *Plugin) listed() bool {
	s, _ := p.now()
	return s != nil
}

// socket is one gRPC server on a socket of its own. A new name for each registration is what keeps kubelets from
// 1.37 on from taking a new registration for the old one.
type socket struct {
	path    string
	server  *grpc.Server
	opened  chan struct{} // closed when the kubelet opens its first stream
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
	listener, err := net.Listen("unix", sock.path)
	if err != nil {
		return nil, err
	}
	sock.server = grpc.NewServer(grpc.StreamInterceptor(sock.countStreams), grpc.UnaryInterceptor(s.Plugin.countCalls))
	api.RegisterDevicePluginServer(sock.server, s.Plugin)
	go func() { _ = sock.server.Serve(listener) }() // ends by stop, or when the listener breaks, which attend notices
	return sock, nil
}

// countStreams notices when the kubelet opens the stream of lists and when that ends.
func (k *socket) countStreams(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	k.streams.Add(1)
	k.openOnce.Do(func() { close(k.opened) })
	err := handler(server, stream)
	if k.streams.Add(-1) == 0 {
		k.endOnce.Do(func() { close(k.ended) })
	}
	return err
}

// stop ends all calls and removes the socket.
func (k *socket) stop() {
	k.server.Stop()
	_ = os.Remove(k.path)
}

func (s *Server) register(ctx context.Context, kubelet string, sock *socket) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
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

// attend waits until the kubelet may have forgotten the plugin, and returns by which of the signs: a new kubelet.sock, its
// own socket gone, the stream ended, no stream at all. inotify tells at once, and a look each second makes up for what
// it may have lost.
func (s *Server) attend(ctx context.Context, changes <-chan fsnotify.Event, sock *socket, kubelet os.FileInfo) error {
	noStream := time.NewTimer(streamLimit)
	defer noStream.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	opened := sock.opened
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-opened:
			opened = nil
			noStream.Stop()
			s.phase.Store(phaseRegistered)
			s.Log.Info("registered", "resource", s.Resource, "socket", filepath.Base(sock.path))
		case <-noStream.C:
			return errors.New("the kubelet opened no stream")
		case <-sock.ended:
			return errors.New("the kubelet ended the stream")
		case <-changes:
		case <-tick.C:
		}
		if now, err := os.Stat(filepath.Join(s.Dir, "kubelet.sock")); err == nil && !sameSocket(now, kubelet) {
			return restart("there is a new kubelet.sock")
		}
		if _, err := os.Stat(sock.path); errors.Is(err, fs.ErrNotExist) {
			return restart("its own socket is gone")
		}
	}
}

// sameSocket compares by inode and time: an inode number may be given again at once.
func sameSocket(a, b os.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

// watchDir returns what changes in a directory or, as long as it is not there, in the nearest parent that is. Without
// inotify nothing ever changes.
func watchDir(dir string) (changes <-chan fsnotify.Event, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	for watcher.Add(dir) != nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return watcher.Events, func() { _ = watcher.Close() }
}

// waitForChange waits for a change that is not one of our own sockets, no longer than the limit, and tells whether there
// was one.
func waitForChange(ctx context.Context, changes <-chan fsnotify.Event, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e := <-changes:
			if !strings.HasPrefix(filepath.Base(e.Name), socketPrefix) {
				return true
			}
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
