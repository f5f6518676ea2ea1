package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"

	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	versions "github.com/containerd/containerd/api/services/version/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// daemon is what a running containerd says of itself.
type daemon struct {
	release    release
	state      State
	dirs       []string
	pid, pidns uint64           // its process, and that one's pid namespace; 0 before 1.7
	trouble    *finding.Finding // why the state is unknown, or CRI and with it CDI off
}

// ask asks the containerd behind a socket, or says why there is no answer.
func (h home) ask(ctx context.Context, socket string) (*daemon, *finding.Finding) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	first, err := dial(ctx, "") // its error says more than that of a call
	if err != nil {
		return nil, h.unheard(err)
	}
	_ = first.Close()
	conn, err := grpc.NewClient("passthrough:///containerd", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		return nil, h.unheard(err)
	}
	defer func() { _ = conn.Close() }()
	return h.interview(ctx, conn)
}

// interview asks who is there, and CRI for its config.
func (h home) interview(ctx context.Context, conn *grpc.ClientConn) (*daemon, *finding.Finding) {
	version, err := versions.NewVersionClient(conn).Version(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, h.unheard(err)
	}
	d := &daemon{release: parseRelease(version.GetVersion()), state: Unknown}
	inside := introspection.NewIntrospectionClient(conn)
	if server, err := inside.Server(ctx, &emptypb.Empty{}); err == nil {
		d.pid, d.pidns = server.GetPid(), server.GetPidns()
	}
	answer, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	switch {
	case status.Code(err) == codes.Unimplemented:
		d.state, d.trouble = Off, h.noCRI(ctx, inside)
	case err != nil:
		d.trouble = found(finding.CRISilent, place{}, fmt.Sprintf("its CRI does not answer: %.300q", status.Convert(err).Message()), "ask again when it has started; else see "+h.log)
	default:
		if d.state, d.dirs = parseStatus(answer.GetInfo()["config"]); d.state == Unknown {
			d.trouble = found(finding.CRISilent, place{}, "its CRI does not tell its config", "see containerd config dump")
		}
	}
	return d, nil
}

// noCRI tells CRI that is disabled, or without a plugin that is, from CRI that failed to start.
func (h home) noCRI(ctx context.Context, inside introspection.IntrospectionClient) *finding.Finding {
	answer, err := inside.Plugins(ctx, &introspection.PluginsRequest{Filters: []string{"id==cri"}})
	if err == nil {
		for _, p := range answer.GetPlugins() {
			if why := p.GetInitErr().GetMessage(); why != "" && !strings.Contains(why, "no plugins registered for io.containerd.cri.") {
				return found(finding.CRIFailed, place{}, fmt.Sprintf("its CRI did not start: %.300q", why), "see "+h.log)
			}
		}
	}
	return found(finding.CRIDisabled, place{}, criDisabled, "")
}

// parseStatus reads the config that CRI tells (containerd, internal/cri/config/config.go). Where enableCDI is not told,
// CDI is always on, or not known at all, and then there are no directories either.
func parseStatus(text string) (State, []string) {
	var config map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &config) != nil || config == nil {
		return Unknown, nil
	}
	var dirs []string
	written, hasDirs := config["cdiSpecDirs"]
	if hasDirs && json.Unmarshal(written, &dirs) != nil {
		return Unknown, nil
	}
	for i := range dirs {
		dirs[i] = strings.Trim(strconv.Quote(dirs[i]), `"`) // a socket may tell anything
	}
	switch enable := string(config["enableCDI"]); {
	case enable == "true", hasDirs && (enable == "" || enable == "null"):
		return On, dirs
	case enable == "false":
		return Off, dirs
	case enable == "":
		return Unsupported, nil
	}
	return Unknown, nil
}

// unheard says in words why there was no answer.
func (h home) unheard(err error) *finding.Finding {
	start := "systemctl start " + h.unit
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found(finding.SocketMissing, place{}, "it does not run: its socket is not there", start+", if it is meant to run")
	case errors.Is(err, unix.ECONNREFUSED):
		return found(finding.SocketRefused, place{}, "it does not run: nobody listens on its socket", start)
	case errors.Is(err, fs.ErrPermission):
		return found(finding.SocketDenied, place{}, "it was not asked: its socket may not be opened", "")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.EAGAIN), status.Code(err) == codes.DeadlineExceeded:
		return found(finding.SocketNoAnswer, place{}, "what listens on its socket does not answer", "see what hangs: "+h.log)
	}
	return found(finding.SocketForeign, place{}, fmt.Sprintf("what answers on its socket is not containerd: %.300q", host.Reason(err)), "")
}
