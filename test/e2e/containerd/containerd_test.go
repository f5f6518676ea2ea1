package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const socket = "/run/containerd/containerd.sock"

// nvidiaRuntime is what configs of GPU toolkits name as the default runtime. Here it is runc.
const nvidiaRuntime = "/usr/bin/nvidia-container-runtime"

// engine is one release of containerd, installed as the machine's own, with a root and a state of its own.
type engine struct {
	t       *testing.T
	release string
	socket  string
	under   []string // a command that starts the daemon; nil: it is started itself
	daemon  *machine.Daemon
}

// runcWrapper leaves out what some machines lack or forbid: systemd, and a lower OOM score than one's own.
const runcWrapper = `#!/bin/sh
for arg; do
  shift
  case $before in --bundle|-b) sed -i "s/\"oomScoreAdj\":-[0-9]*/\"oomScoreAdj\":$(cat /proc/self/oom_score_adj)/" "$arg/config.json";; esac
  before=$arg
  [ "$arg" = --systemd-cgroup ] || set -- "$@" "$arg"
done
exec %s "$@"
`

// newEngine installs a release, gives it the image and no config. There is a kubelet that would use it.
func newEngine(t *testing.T, release string) *engine {
	t.Helper()
	e := &engine{t: t, release: release, socket: socket}
	need(t, e.programs()...)
	for _, dir := range []string{"/var/lib/containerd", "/run/containerd"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		machine.Mount(t, "tmpfs", dir, "tmpfs", 0, "")
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{wrappers + "/runc", nvidiaRuntime} {
		machine.Write(t, path, fmt.Sprintf(runcWrapper, runc))
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e.kubelet("")
	t.Setenv("PATH", wrappers+":/usr/bin:"+os.Getenv("PATH")) // a shim must be of its daemon's release
	e.install()
	e.configure(nil)
	e.takeImage()
	return e
}

// kubelet configures the kubelet with one more line.
func (e *engine) kubelet(line string) {
	e.t.Helper()
	machine.Write(e.t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n"+line+"\n")
}

// install puts the release's programs in place of those that are there, and into the package database.
func (e *engine) install() {
	e.t.Helper()
	for _, p := range e.programs() {
		data, err := os.ReadFile(p)
		if err != nil {
			e.t.Fatal(err)
		}
		here := filepath.Join("/usr/bin", filepath.Base(p))
		_ = os.Remove(here)
		if err := os.WriteFile(here, data, 0o755); err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = os.Remove(here) })
	}
	e.know(true)
}

func (e *engine) programs() (paths []string) {
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		paths = append(paths, tool("containerd-v"+e.release+"/"+p))
	}
	return paths
}

// takeImage gives it the machine.Image, also as what it takes for pause.
func (e *engine) takeImage() {
	e.t.Helper()
	pause := regexp.MustCompile(`sandbox(?:_image)? = ['"]([^'"]+)`).FindStringSubmatch(machine.Output(e.t, "containerd", "config", "default"))
	if pause == nil {
		e.t.Fatal("its default config names no image for pause")
	}
	machine.WriteImage(e.t, "/run/image.tar", machine.Image, pause[1])
	if err := e.start(); err != nil {
		e.t.Fatal(err)
	}
	for _, namespace := range []string{"k8s.io", "default"} {
		machine.Output(e.t, "ctr", "-n", namespace, "images", "import", "/run/image.tar")
	}
	e.stop()
}

// know tells or hides which release is installed, as the package database would.
func (e *engine) know(known bool) {
	e.t.Helper()
	text := "Package: base\nStatus: install ok installed\nVersion: 1\n"
	if known {
		text += fmt.Sprintf("\nPackage: containerd\nStatus: install ok installed\nVersion: %s~ds1-1\n", e.release)
	}
	machine.Write(e.t, "/var/lib/dpkg/status", text)
}

// configure makes some files the whole of /etc/containerd.
func (e *engine) configure(files map[string]string) {
	e.t.Helper()
	if err := os.RemoveAll("/etc/containerd"); err != nil {
		e.t.Fatal(err)
	}
	for name, text := range files {
		machine.Write(e.t, filepath.Join("/etc/containerd", name), text)
	}
}

// start starts the daemon, and returns an error if it ends rather than serves.
func (e *engine) start(flags ...string) error {
	e.t.Helper()
	d := machine.Start(e.t, slices.Concat(e.under, []string{"containerd"}, flags)...)
	e.daemon = d
	e.t.Cleanup(e.stop)
	client := cri.NewRuntimeServiceClient(machine.Dial(e.t, e.socket))
	await.Until(e.t, "containerd "+e.release+" serves", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := client.Status(ctx, &cri.StatusRequest{})
		if status.Code(err) == codes.Unimplemented || !d.Running() { // without CRI it serves all the same
			return nil
		}
		return err
	})
	if !d.Running() {
		return fmt.Errorf("it ended: %s", d.Said(400))
	}
	return nil
}

// stop stops the daemon, if it runs.
func (e *engine) stop() {
	if e.daemon != nil {
		e.daemon.Stop(unix.SIGTERM)
	}
}

// run starts a pod and in it a container that asks for a device, over CRI, and returns what it has got.
func (e *engine) run(device string) (got string, err error) { return e.runs(device, machine.Inspect) }

// runs is run with a script.
func (e *engine) runs(device, script string) (got string, err error) {
	e.t.Helper()
	client := cri.NewRuntimeServiceClient(machine.Dial(e.t, e.socket))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	host := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "pod", Uid: "pod", Namespace: "default"},
		Linux:    &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: host}},
	}
	sandbox, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod})
	if err != nil {
		return "", err
	}
	defer func() {
		_, stopErr := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox.GetPodSandboxId()})
		_, removeErr := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox.GetPodSandboxId()})
		err = errors.Join(err, stopErr, removeErr)
	}()
	container, err := client.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  sandbox.GetPodSandboxId(),
		SandboxConfig: pod,
		Config: &cri.ContainerConfig{
			Metadata:   &cri.ContainerMetadata{Name: "container"},
			Image:      &cri.ImageSpec{Image: machine.Image},
			CDIDevices: []*cri.CDIDevice{{Name: "hyperaccel.ai/lpu=" + device}},
			Linux:      &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: host}},
		},
	})
	if err != nil {
		return "", err
	}
	if _, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.GetContainerId()}); err != nil {
		return "", err
	}
	answer, err := client.ExecSync(ctx, &cri.ExecSyncRequest{
		ContainerId: container.GetContainerId(),
		Cmd:         []string{"sh", "-c", script},
		Timeout:     20,
	})
	return string(answer.GetStdout()), err
}

// truth tells whether a container that asks the running daemon for LPU 0 really gets it.
func (e *engine) truth() string {
	e.t.Helper()
	got, err := e.run(one)
	switch {
	case err == nil && got == gets(e.t, one):
		return "yes"
	case err == nil && got == "",
		status.Code(err) == codes.Unimplemented,
		err != nil && strings.Contains(err.Error(), "unresolvable CDI devices"):
		return "no"
	}
	return fmt.Sprintf("neither: %v %q", err, got)
}

// fresh starts the daemon on its files and returns the truth; it leaves it running, unless it refused.
func (e *engine) fresh(flags ...string) string {
	e.t.Helper()
	e.stop()
	if err := e.start(flags...); err != nil {
		return "refused"
	}
	return e.truth()
}
