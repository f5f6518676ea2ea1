package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Socket is where an engine serves CRI.
type Socket struct {
	Engine string
	Path   string // on this machine
}

// cri is an engine as the kubelet asks it. The container is of the sandbox image, which is
// there already, and has lpuctl by a mount.
type cri struct {
	socket  Socket
	conn    *grpc.ClientConn
	client  runtime.RuntimeServiceClient
	image   string // id of the sandbox image
	pod     *runtime.PodSandboxConfig
	sandbox string // id; "": there is none
}

func (c *cri) name() string { return c.socket.Engine }

// proofDir is where the container finds what the proof needs.
const proofDir = "/.lpuctl-proof"

func (c *cri) ready(ctx context.Context, now time.Time) *obstacle {
	if f, err := os.OpenFile(c.socket.Path, os.O_RDWR, 0); errors.Is(err, fs.ErrPermission) {
		return &obstacle{why: "no permission to open " + c.socket.Path, remedy: "run it as root"}
	} else if err == nil {
		_ = f.Close() // a socket does not open
	}
	conn, err := grpc.NewClient("unix:"+c.socket.Path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return &obstacle{why: err.Error()}
	}
	c.conn, c.client = conn, runtime.NewRuntimeServiceClient(conn)
	answer, err := c.client.Status(ctx, &runtime.StatusRequest{Verbose: true})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return c.close(&obstacle{why: "its CRI is disabled", remedy: "see lpuctl runtime check"})
	case err != nil:
		return c.close(&obstacle{why: "its CRI does not answer", words: said(err)})
	}
	c.sweep(ctx, now)
	if c.image, err = c.sandboxImage(ctx, answer.GetInfo()["config"]); err != nil {
		return c.close(&obstacle{why: "its images cannot be listed", words: said(err)})
	}
	if c.image == "" {
		return c.close(&obstacle{why: "no sandbox image: the engine has not pulled it yet, and a proof pulls nothing",
			remedy: "start any pod on the node, or pull the image that the engine's config names"})
	}
	return nil
}

func (c *cri) close(o *obstacle) *obstacle {
	_ = c.conn.Close()
	return o
}

// said is what an engine says.
func said(err error) string { return tail([]byte(status.Convert(err).Message())) }

// sandboxImage is the id of the image of sandboxes, if it is there: the one that the config
// names, or else one that is pinned, because the engine pins that image.
func (c *cri) sandboxImage(ctx context.Context, config string) (string, error) {
	images := runtime.NewImageServiceClient(c.conn)
	var named struct {
		Image string `json:"sandboxImage"`
	}
	_ = json.Unmarshal([]byte(config), &named) // newer ones do not say
	if named.Image != "" {
		answer, err := images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: named.Image}})
		return answer.GetImage().GetId(), err
	}
	list, err := images.ListImages(ctx, &runtime.ListImagesRequest{})
	for _, i := range list.GetImages() {
		if i.GetPinned() {
			return i.GetId(), nil
		}
	}
	return "", err
}

// sweep removes the pods of proofs that were left behind.
func (c *cri) sweep(ctx context.Context, now time.Time) {
	list, _ := c.client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{}) // nil after an error
	for _, pod := range list.GetItems() {
		if owner, is := pod.GetLabels()[Label]; is && leftBehind(owner, now) {
			c.remove(ctx, pod.GetId())
		}
	}
}

// remove removes a pod and its containers. What stays the next proof removes.
func (c *cri) remove(ctx context.Context, id string) {
	_, _ = c.client.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id})
	_, _ = c.client.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id})
}

func (c *cri) prepare(_ context.Context, p *Proof) error {
	if err := isStatic(p.Program); err != nil {
		return err
	}
	dir, err := p.root()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "promise.json"), p.promise(), 0o644) //nolint:gosec // the container reads it
}

func (c *cri) run(ctx context.Context, p *Proof, with bool) ([]byte, error) {
	host := &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE} // so no network is made
	labels := map[string]string{Label: p.id}
	c.pod = &runtime.PodSandboxConfig{
		Metadata:     &runtime.PodSandboxMetadata{Name: Prefix + p.id, Uid: p.id, Namespace: Label},
		Labels:       labels,
		LogDirectory: p.dir,
		Linux:        &runtime.LinuxPodSandboxConfig{SecurityContext: &runtime.LinuxSandboxSecurityContext{NamespaceOptions: host}},
	}
	pod, err := c.client.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: c.pod})
	if err != nil {
		return nil, spoken(err)
	}
	c.sandbox = pod.GetPodSandboxId()
	root, err := p.root()
	if err != nil {
		return nil, err
	}
	config := &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: Label},
		Image:    &runtime.ImageSpec{Image: c.image},
		Command:  []string{proofDir + "/" + program, "doctor", "--inside", proofDir + "/promise.json"},
		Labels:   labels,
		LogPath:  "container.log",
		Mounts:   []*runtime.Mount{{HostPath: root, ContainerPath: proofDir, Readonly: true, SelinuxRelabel: true}},
		Linux: &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
			NamespaceOptions: host, RunAsUser: &runtime.Int64Value{}, // the sandbox image has another user
		}},
	}
	if with {
		c.withLPUs(config, p)
	}
	return c.output(ctx, p, config)
}

// withLPUs asks for the LPUs as the device plugin and the DRA driver do.
func (c *cri) withLPUs(config *runtime.ContainerConfig, p *Proof) {
	for _, name := range p.Container.Devices {
		config.CDIDevices = append(config.CDIDevices, &runtime.CDIDevice{Name: name})
	}
	for _, v := range p.Container.Env {
		config.Envs = append(config.Envs, &runtime.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	if t := p.Container.Table; t != nil {
		config.Mounts = append(config.Mounts,
			&runtime.Mount{HostPath: p.Container.TableAt, ContainerPath: t.ContainerPath, Readonly: true})
	}
}

// output runs a container to its end, and returns what it printed.
func (c *cri) output(ctx context.Context, p *Proof, config *runtime.ContainerConfig) ([]byte, error) {
	log := filepath.Join(p.dir, config.GetLogPath())
	_ = os.Remove(log) // of a container before
	made, err := c.client.CreateContainer(ctx,
		&runtime.CreateContainerRequest{PodSandboxId: c.sandbox, Config: config, SandboxConfig: c.pod})
	if err != nil {
		return nil, spoken(err)
	}
	id := made.GetContainerId()
	if _, err := c.client.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: id}); err != nil {
		return nil, spoken(err)
	}
	const every = 20 * time.Millisecond
	for {
		answer, err := c.client.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return nil, spoken(err)
		}
		if s := answer.GetStatus(); s.GetState() == runtime.ContainerState_CONTAINER_EXITED {
			out, words, err := readLog(log)
			if s.GetExitCode() != 0 {
				err = &spokenError{fmt.Errorf("exit code %d %s", s.GetExitCode(), s.GetReason()), tail([]byte(words + s.GetMessage()))}
			}
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(every):
		}
	}
}

// readLog reads a container's log in the form of CRI: time, stream, F or P for a whole line
// or a part of one, and the text.
func readLog(file string) (out []byte, words string, err error) {
	data, err := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		switch {
		case len(fields) < 4:
		case fields[1] == "stdout":
			out = append(out, fields[3]...)
		default:
			words += fields[3] + "\n"
		}
	}
	return out, words, err
}

func spoken(err error) error {
	return &spokenError{fmt.Errorf("%v", status.Code(err)), said(err)}
}

func (c *cri) clean(ctx context.Context, _ *Proof, _ bool) {
	if c.sandbox != "" {
		c.remove(ctx, c.sandbox)
		c.sandbox = ""
	}
}
