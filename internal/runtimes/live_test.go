package runtimes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	versions "github.com/containerd/containerd/api/services/version/v1"
	"golang.org/x/sys/unix"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// fakeContainerd answers on a real socket what a containerd was measured to answer.
type fakeContainerd struct {
	versions.UnimplementedVersionServer
	introspection.UnimplementedIntrospectionServer

	version  string
	config   string // of CRI; "": CRI does not run
	initErr  string // of CRI
	criErr   error
	pid, ns  uint64
	criMutes bool
	socket   string // on the machine; "": the usual one
}

func (f *fakeContainerd) Version(context.Context, *emptypb.Empty) (*versions.VersionResponse, error) {
	return &versions.VersionResponse{Version: f.version}, nil
}

func (f *fakeContainerd) Server(context.Context, *emptypb.Empty) (*introspection.ServerResponse, error) {
	return &introspection.ServerResponse{UUID: "0", Pid: f.pid, Pidns: f.ns}, nil
}

func (f *fakeContainerd) Plugins(context.Context, *introspection.PluginsRequest) (*introspection.PluginsResponse, error) {
	p := &introspection.Plugin{Type: "io.containerd.grpc.v1", ID: "cri"}
	if f.initErr != "" {
		p.InitErr = &statuspb.Status{Message: f.initErr}
	}
	return &introspection.PluginsResponse{Plugins: []*introspection.Plugin{p}}, nil
}

// fakeCRI is its CRI.
type fakeCRI struct {
	cri.UnimplementedRuntimeServiceServer
	*fakeContainerd
}

func (f fakeCRI) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: f.version}, nil
}

func (f fakeCRI) Status(ctx context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	if f.criMutes {
		<-ctx.Done()
		return nil, ctx.Err() // as late as it is, it must not be taken for an answer
	}
	if !r.Verbose || f.criErr != nil {
		return nil, f.criErr
	}
	return &cri.StatusResponse{Info: map[string]string{"config": f.config, "golang": `"go1.26"`}}, nil
}

// serve runs the daemon on a machine's usual socket.
func (f *fakeContainerd) serve(t *testing.T, root string) {
	t.Helper()
	l := listen(t, filepath.Join(root, cmp.Or(f.socket, containerdSocket)))
	s := grpc.NewServer()
	versions.RegisterVersionServer(s, f)
	introspection.RegisterIntrospectionServer(s, f)
	if f.config != "" || f.criErr != nil || f.criMutes {
		cri.RegisterRuntimeServiceServer(s, fakeCRI{fakeContainerd: f})
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLive(t *testing.T) {
	dirs := `"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]`
	answersOff := strings.Replace(answersOn, "true", "false", 1)
	off := "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = false\n"
	on := strings.Replace(off, "false", "true", 1)
	for name, test := range map[string]struct {
		daemon fakeContainerd
		file   string
		want   string // state, state after restart, highest cdiVersion
		finds  []string
	}{
		"1.6":                   {fakeContainerd{version: "1.6.20~ds1", config: `{"x":1}`}, "", "unsupported off ", []string{"cdi-unsupported"}},
		"1.7 off":               {fakeContainerd{version: "v1.7.35", config: answersOff}, off, "off off 0.8.0", []string{"cdi-off"}},
		"1.7 on":                {fakeContainerd{version: "v1.7.35", config: answersOn}, on, "on on 0.8.0", nil},
		"off, on after restart": {fakeContainerd{version: "v1.7.35", config: answersOff}, on, "off on 0.8.0", []string{"restart-needed"}},
		"on, off after restart": {fakeContainerd{version: "v1.7.35", config: answersOn}, off, "on off 0.8.0", []string{"restart-changes"}},
		"on, refused after":     {fakeContainerd{version: "v2.2.9", config: answersOn}, "[", "on off 1.1.0", []string{"restart-changes"}},
		"off, nobody knows why": {fakeContainerd{version: "strange", config: answersOff}, "", "off unknown ",
			[]string{"cdi-off", "version-unknown"}},
		"2.3 null": {fakeContainerd{version: "v2.3.7", config: `{"enableCDI":null,` + dirs + `}`}, "", "on on 1.1.0", nil},
		"2.4":      {fakeContainerd{version: "v2.4.2", config: `{` + dirs + `}`}, "", "on on 1.1.0", nil},
		"dirs none": {fakeContainerd{version: "v2.2.9", config: `{"enableCDI":true,"cdiSpecDirs":[]}`}, "", "on on 1.1.0",
			[]string{"spec-dir-not-read"}},
		"dirs none, 2.4": {fakeContainerd{version: "v2.4.2", config: `{"cdiSpecDirs":[]}`}, "", "on on 1.1.0", nil},
		"off, and dirs none": {fakeContainerd{version: "v2.2.9", config: `{"enableCDI":false,"cdiSpecDirs":[]}`},
			on + "cdi_spec_dirs = []\n", "off on 1.1.0",
			[]string{"restart-needed", "spec-dir-not-read"}},
		"dirs after restart": {fakeContainerd{version: "v2.4.2", config: `{` + dirs + `}`},
			"version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\ncdi_spec_dirs = [\"/x\"]\n", "on on 1.1.0",
			[]string{"restart-changes"}},
		"config strange": {fakeContainerd{version: "v2.4.2", config: `[]`}, "", "unknown on 1.1.0", []string{"cri-silent"}},
		"value strange":  {fakeContainerd{version: "v2.4.2", config: `{"enableCDI":"yes"}`}, "", "unknown on 1.1.0", []string{"cri-silent"}},
		"dirs strange":   {fakeContainerd{version: "v2.4.2", config: `{"cdiSpecDirs":7}`}, "", "unknown on 1.1.0", []string{"cri-silent"}},
		"CRI starts": {fakeContainerd{
			version: "v2.4.2",
			criErr:  status.Error(codes.Unavailable, "server is not initialized yet\x1b[2J"),
		}, "", "unknown on 1.1.0", []string{"cri-silent"}},
		"CRI mute":     {fakeContainerd{version: "v2.4.2", criMutes: true}, "", "unknown on 1.1.0", []string{"cri-silent"}},
		"CRI disabled": {fakeContainerd{version: "v2.4.2"}, `disabled_plugins = ["cri"]`, "off off 1.1.0", []string{"cri-disabled"}},
		"CRI enabled since": {fakeContainerd{version: "v2.4.2"}, "", "off on 1.1.0",
			[]string{"cri-disabled"}},
		"CRI failed": {fakeContainerd{version: "v2.4.2", initErr: "no such\n runtime"}, "", "off unknown 1.1.0", []string{"cri-failed"}},
		"a plugin of CRI enabled since": {fakeContainerd{
			version: "v2.4.2",
			initErr: "unable to load CRI runtime service plugin dependency: " +
				"no plugins registered for io.containerd.cri.v1.runtime: plugin: not found",
		}, "", "off on 1.1.0", []string{"cri-disabled"}},
		"CRI failed, told": {fakeContainerd{version: "v2.4.2", initErr: "no runtime"},
			"version = 3\ndisabled_plugins = [\"io.containerd.cri.v1.runtime\"]\n", "off off 1.1.0", []string{"cri-disabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			writeFile(t, root, "var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
			if test.file != "" {
				writeFile(t, root, containerdConfig, test.file)
			}
			test.daemon.serve(t, root)
			r := containerdOn(t, root, Options{Timeout: time.Second})
			if got := fmt.Sprintf("%s %s %s", r.CDI, r.AfterRestart, r.MaxCDIVersion); got != test.want || r.Source != Live {
				t.Errorf("got %s by %s, want %s by live", got, r.Source, test.want)
			}
			if got := findings(r); !slices.Equal(got, test.finds) {
				t.Errorf("found %v, want %v\n%s", got, test.finds, describe(root, r))
			}
			if text := describe(root, r); strings.Contains(text, "\x1b") {
				t.Errorf("what the daemon says reaches the terminal as it is: %q", text)
			}
		})
	}
}

// TestOnAndNotJudged: whoever runs containerd is not told to start it.
func TestOnAndNotJudged(t *testing.T) {
	root := t.TempDir()
	writeFile(t, root, containerdConfig, "version = 3\n[plugins.\"io.containerd.cri.v1.images\"]\nsnapshotter = \"zfs\"\n")
	(&fakeContainerd{version: "v2.4.2", config: answersOn}).serve(t, root)
	r := containerdOn(t, root, Options{Timeout: time.Second})
	i := slices.IndexFunc(r.Findings, func(f finding.Finding) bool { return f.ID == finding.CRINotJudged })
	if r.CDI != On || i < 0 || r.Findings[i].Severity != finding.Note || !strings.HasPrefix(r.Findings[i].Remedy, "nothing, unless") {
		t.Errorf("%s", describe(root, r))
	}
}

// findings are the ids of what is more than a note.
func findings(r *Runtime) (ids []string) {
	for _, f := range r.Findings {
		if f.Severity != finding.Note {
			ids = append(ids, string(f.ID))
		}
	}
	return ids
}

// A socket that gives no answer costs no more than the time limit, and the files answer.
func TestSilentSockets(t *testing.T) {
	accept := func(t *testing.T, root string, then func(net.Conn)) {
		l := listen(t, filepath.Join(root, containerdSocket))
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = c.Close() })
				then(c)
			}
		}()
	}
	for name, test := range map[string]struct {
		socket func(t *testing.T, root string)
		want   string
	}{
		"missing": {func(*testing.T, string) {}, "socket-missing"},
		"refused": {func(t *testing.T, root string) {
			l := listen(t, filepath.Join(root, containerdSocket)).(*net.UnixListener)
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}, "socket-refused"},
		"mute":   {func(t *testing.T, root string) { accept(t, root, func(net.Conn) {}) }, "socket-no-answer"},
		"hangup": {func(t *testing.T, root string) { accept(t, root, func(c net.Conn) { _ = c.Close() }) }, "socket-foreign"},
		"junk": {func(t *testing.T, root string) {
			accept(t, root, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n\x1b[2J")) })
		}, "socket-foreign"},
		"foreign": {func(t *testing.T, root string) {
			s := grpc.NewServer()
			cri.RegisterRuntimeServiceServer(s, fakeCRI{fakeContainerd: &fakeContainerd{config: "{}"}})
			l := listen(t, filepath.Join(root, containerdSocket))
			go func() { _ = s.Serve(l) }()
			t.Cleanup(s.Stop)
		}, "socket-foreign"},
		"full": {func(t *testing.T, root string) {
			path := filepath.Join(root, containerdSocket)
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err == nil {
				err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
			}
			if err == nil {
				err = unix.Listen(fd, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			for { // nobody accepts these
				c, err := net.DialTimeout("unix", path, 50*time.Millisecond)
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = c.Close() })
			}
		}, "socket-no-answer"},
		"no socket": {func(t *testing.T, root string) { writeFile(t, root, containerdSocket, "") }, "socket-refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := installContainerd(t, "2.2.9")
			writeFile(t, root, containerdConfig, "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\n")
			test.socket(t, root)
			r := containerdOn(t, root, Options{})
			if r.CDI != Off || r.Source != Files || r.SpecDirs == nil {
				t.Errorf("got %s by %s, want off by files", r.CDI, r.Source)
			}
			i := slices.IndexFunc(r.Findings, func(f finding.Finding) bool { return strings.HasPrefix(string(f.ID), "socket-") })
			if i < 0 || r.Findings[i].ID != finding.ID(test.want) || strings.Contains(r.Findings[i].Message, "\x1b") {
				t.Errorf("want %s\n%s", test.want, describe(root, r))
			}
		})
	}
}

// A directory that cannot be listed or a socket that may not be opened is no answer, and no failure.
func TestDeniedSocket(t *testing.T) {
	f := standardContainerd().noAnswer(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.EACCES)})
	if f.ID != "socket-denied" {
		t.Errorf("got %+v", f)
	}
}

// The config that counts after a restart is the one that the daemon was started with.
func TestConfigInUse(t *testing.T) {
	for name, test := range map[string]struct {
		cmdline string
		ns      uint64
		want    State // after a restart
	}{
		"told":            {"/usr/bin/containerd\x00--log-level\x00debug\x00--config\x00/srv/other.toml\x00", 7, Off},
		"told, joined":    {"containerd\x00-c=/srv/other.toml\x00", 7, Off},
		"relative":        {"containerd\x00-c\x00other.toml\x00", 7, Off},
		"not told":        {"containerd\x00", 7, On},
		"last argument":   {"containerd\x00-c", 7, On},
		"told, not there": {"containerd\x00-c\x00/srv/none.toml\x00", 7, Off},
		"other namespace": {"containerd\x00-c\x00/srv/other.toml\x00", 8, On},
		"other program":   {"cat\x00-c\x00/srv/other.toml\x00", 7, On},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeFile(t, root, "srv/other.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = false\n")
			writeFile(t, root, containerdConfig, "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n")
			writeFile(t, root, "proc/4711/cmdline", test.cmdline)
			for link, target := range map[string]string{"ns/pid": "pid:[7]", "cwd": "/srv", "exe": "/usr/bin/containerd (deleted)"} {
				path := filepath.Join(root, "proc/4711", link)
				_ = os.MkdirAll(filepath.Dir(path), 0o755)
				if err := os.Symlink(target, path); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, root, "usr/bin/containerd", "")
			writeFile(t, root, "var/lib/dpkg/status", "Package: containerd.io\nStatus: install ok installed\nVersion: 1.7.35-1\n")
			(&fakeContainerd{version: "v1.6.9", config: `{}`, pid: 4711, ns: test.ns}).serve(t, root)
			r := containerdOn(t, root, Options{})
			if test.ns == 7 && strings.Contains(test.cmdline, "containerd") && r.AfterRestart != test.want {
				t.Errorf("after a restart %s, want %s\n%s", r.AfterRestart, test.want, describe(root, r))
			}
			if r.CDI != Unsupported || r.Version != "1.6.9" {
				t.Errorf("it runs %s with CDI %s, want 1.6.9 and unsupported", r.Version, r.CDI)
			}
		})
	}
}

// The files of a socket and a config that are typed are taken as typed.
func TestTyped(t *testing.T) {
	elsewhere := t.TempDir()
	(&fakeContainerd{version: "v2.4.2", config: `{"cdiSpecDirs":["/var/run/cdi"]}`}).serve(t, elsewhere)
	writeFile(t, elsewhere, "mine.toml", "version = 2\nimports = [\"d/*.toml\"]\n")
	writeFile(t, elsewhere, "d/a.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\ncdi_spec_dirs = [\"/y\"]\n")
	root := t.TempDir()
	r := containerdOn(t, root, Options{
		ContainerdAddress: "unix://" + elsewhere + containerdSocket,
		ContainerdConfig:  elsewhere + "/mine.toml",
	})
	if r.CDI != On || !slices.Equal(findings(r), []string{"restart-changes"}) || r.Findings[len(r.Findings)-1].File != elsewhere+"/d/a.toml" {
		t.Errorf("got\n%s", describe(root, r))
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
