package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	daemons "github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/v2/pkg/dialer"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/versions"
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

// ask queries the containerd behind a socket. Without an answer the finding says why.
func (inst installation) ask(ctx context.Context, socket string) (*daemon, *finding.Finding) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		if _, err := os.Stat(socket); err != nil { // containerd's dialer would wait for it to appear
			return nil, err
		}
		return dialer.ContextDialer(ctx, dialer.DialAddress(socket))
	}
	first, err := dial(ctx, "") // the error of a dial is more precise than that of a call
	if err != nil {
		return nil, inst.noAnswer(err)
	}
	_ = first.Close()
	conn, err := grpc.NewClient("passthrough:///containerd", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, inst.noAnswer(err)
	}
	defer func() { _ = conn.Close() }()
	return inst.query(ctx, conn)
}

// askVersion asks a CRI for the version of its runtime; the answer is unknown if there is
// none.
func (m machine) askVersion(ctx context.Context, socket string) release {
	real, _ := m.Resolve(socket)
	if !m.Exists(socket) { // as nothing does that cannot be resolved
		return release{}
	}
	conn, err := grpc.NewClient("unix:"+real, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return release{}
	}
	defer func() { _ = conn.Close() }()
	// The answer is nil after an error.
	answer, _ := cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{})
	return versions.Parse(answer.GetRuntimeVersion())
}

// query asks for the version, the process and the config of CRI.
func (inst installation) query(ctx context.Context, conn *grpc.ClientConn) (*daemon, *finding.Finding) {
	version, err := daemons.NewVersionClient(conn).Version(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, inst.noAnswer(err)
	}
	d := &daemon{release: versions.Parse(version.GetVersion()), state: Unknown}
	inside := introspection.NewIntrospectionClient(conn)
	server, _ := inside.Server(ctx, &emptypb.Empty{}) // nil after an error
	d.pid, d.pidns = server.GetPid(), server.GetPidns()
	answer, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	switch {
	case status.Code(err) == codes.Unimplemented:
		d.state, d.trouble = Off, inst.noCRI(ctx, inside)
	case err != nil:
		d.trouble = newFinding(finding.CRISilent, location{}, fmt.Sprintf("its CRI does not answer: %.300q", status.Convert(err).Message()),
			"ask again when it has started; else see "+inst.log)
	default:
		if d.state, d.dirs = parseStatus(answer.GetInfo()["config"]); d.state == Unknown {
			d.trouble = newFinding(finding.CRISilent, location{}, "its CRI does not return its config", "see containerd config dump")
		}
	}
	return d, nil
}

// noCRI tells a disabled CRI, or one whose plugins are disabled, from one that failed to
// start.
func (inst installation) noCRI(ctx context.Context, inside introspection.IntrospectionClient) *finding.Finding {
	answer, _ := inside.Plugins(ctx, &introspection.PluginsRequest{Filters: []string{"id==cri"}})
	for _, p := range answer.GetPlugins() { // after an error there are none
		if why := p.GetInitErr().GetMessage(); why != "" && !strings.Contains(why, "no plugins registered for io.containerd.cri.") {
			return newFinding(finding.CRIFailed, location{}, fmt.Sprintf("its CRI did not start: %.300q", why), "see "+inst.log)
		}
	}
	return newFinding(finding.CRIDisabled, location{}, criDisabledMessage, "")
}

// parseStatus reads the config in an answer of CRI (containerd,
// internal/cri/config/config.go). Without enableCDI, CDI is always on if there are
// directories for specs, and unsupported if there are none.
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
		dirs[i] = strings.Trim(strconv.Quote(dirs[i]), `"`) // the answer is not trusted
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

// noAnswer says in words why there was no answer.
func (inst installation) noAnswer(err error) *finding.Finding {
	start := fmt.Sprintf(inst.service, "start")
	switch {
	case host.IsAbsent(err):
		return newFinding(finding.SocketMissing, location{}, "it does not run: its socket does not exist", start+", if it is meant to run")
	case errors.Is(err, unix.ECONNREFUSED):
		return newFinding(finding.SocketRefused, location{}, "it does not run: no process listens on its socket", start)
	case errors.Is(err, fs.ErrPermission):
		return newFinding(finding.SocketDenied, location{}, "it was not asked: no permission to open its socket", "")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.EAGAIN), status.Code(err) == codes.DeadlineExceeded:
		return newFinding(finding.SocketNoAnswer, location{}, "what listens on its socket does not answer", "see what hangs: "+inst.log)
	}
	return newFinding(finding.SocketForeign, location{},
		fmt.Sprintf("what answers on its socket is not containerd: %.300q", host.Reason(err)), "")
}
