package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
)

// kubelet is as much of a kubelet as shows what it was told: it keeps the latest list of each plugin that registers, and forgets it
// when the plugin ends, as kubelets do.
type kubelet struct {
	api.UnimplementedRegistrationServer

	dir     string
	mu      sync.Mutex
	plugins int // that have registered or were killed: only the latest one counts
	list    []*api.Device
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	stream, err := api.NewDevicePluginClient(conn).ListAndWatch(context.Background(), &api.Empty{})
	if err != nil {
		return nil, err
	}
	number := k.forget()
	go func() {
		for err == nil {
			err = k.take(stream, number)
		}
		_ = conn.Close()
	}()
	return &api.Empty{}, nil
}

// forget forgets what the latest plugin has listed, and returns the number of the next one.
func (k *kubelet) forget() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugins++
	k.list = nil
	return k.plugins
}

// take takes one list of a plugin, or none where the stream has ended.
func (k *kubelet) take(stream grpc.ServerStreamingClient[api.ListAndWatchResponse], number int) error {
	list, err := stream.Recv()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plugins == number {
		k.list = list.GetDevices()
	}
	return err
}

func (k *kubelet) listed() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	listed := map[string]string{}
	for _, d := range k.list {
		listed[d.ID] = d.Health
	}
	return listed
}

// podLister answers as the kubelet does where it tells of the devices of pods: each LPU is in a pod of its own.
type podLister struct {
	podresources.UnimplementedPodResourcesListerServer

	ids  []string
	pods int // in all
}

func (l *podLister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	answer := &podresources.ListPodResourcesResponse{}
	for i := range l.pods {
		c := &podresources.ContainerResources{Name: "main"}
		if i < len(l.ids) {
			c.Devices = []*podresources.ContainerDevices{{ResourceName: plugin.DefaultResource, DeviceIds: l.ids[i : i+1]}}
		}
		answer.PodResources = append(answer.PodResources, &podresources.PodResources{
			Name: fmt.Sprint("pod", i), Namespace: "ml", Containers: []*podresources.ContainerResources{c},
		})
	}
	return answer, nil
}

func (l *podLister) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{
		Devices: []*podresources.ContainerDevices{{ResourceName: plugin.DefaultResource, DeviceIds: l.ids}},
	}, nil
}

// newPodLister tells on a socket of so many pods, the first of which have the LPUs with these ids.
func newPodLister(t *testing.T, socket string, ids []string, pods int) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &podLister{ids: ids, pods: pods})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

// processes is a world in which lpuctl runs as real processes.
type processes struct {
	*world
	kubelet *kubelet
	serving *exec.Cmd
	said    bytes.Buffer // by all of serve
	// unread: serve may not have read the file with the cordons since a command changed it, which
	// the kubelet's list does not show if the LPU could not be had anyhow.
	unread bool
}

func newProcesses(t *testing.T, r *rand.Rand) *processes {
	t.Helper()
	p := &processes{world: newWorld(t, r)}
	p.kubelet = newKubelet(t, filepath.Join(p.root, "kubelet"))
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("after %v serve had said:\n%s", p.steps, &p.said)
		}
	})
	p.serveAgain()
	return p
}

// newKubelet starts a kubelet in a new directory.
func newKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k, server := &kubelet{dir: dir}, grpc.NewServer()
	api.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return k
}

// command is a process of lpuctl on this node.
func (p *processes) command(args ...string) *exec.Cmd {
	return exec.Command("lpuctl", append([]string{"--root", p.root}, args...)...)
}

// serveAgain starts serve.
func (p *processes) serveAgain() {
	p.forgetCordons()
	p.serving = p.command("serve", "--interval", "100ms", "--listen", "", "--plugin-dir", "/kubelet")
	p.serving.Stderr = &p.said
	if err := p.serving.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends serve as nobody can prevent.
func (p *processes) kill() {
	_ = p.serving.Process.Kill()
	_ = p.serving.Wait()
	p.kubelet.forget()
	p.unread = false // the next one reads it before it lists anything
}

// refreshAll runs what the boot unit runs after a change, some of it at the same time, and kills one of them at any moment.
func (p *processes) refreshAll() {
	var running []*exec.Cmd
	for range 1 + p.rand.IntN(4) {
		c := p.command("cdi", "refresh")
		if err := c.Start(); err != nil {
			p.t.Fatal(err)
		}
		running = append(running, c)
	}
	time.Sleep(time.Duration(p.rand.IntN(20)) * time.Millisecond)
	_ = running[0].Process.Kill()
	for _, c := range running {
		_ = c.Wait()
	}
	if out, err := p.command("cdi", "refresh").CombinedOutput(); err != nil && !isFound(err) {
		p.fail("refresh: %v: %s", err, out)
	}
}

// isFound tells whether a process ended with what refresh ends with if an LPU is left out.
func isFound(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == cli.ExitFound
}

// step changes the node, and waits until everything is right.
func (p *processes) step() {
	for done := false; !done; {
		a := actions[p.rand.IntN(nodeActions)]
		if a.name == "cut cordons" && p.unread { // what serve has read counts then, and that is not known
			continue
		}
		before := p.offered()
		done = a.do(p.world)
		if done && strings.HasSuffix(a.name, "cordon") {
			p.unread = slices.Equal(before, p.offered())
		}
		p.steps = append(p.steps, a.name)
	}
	switch p.rand.IntN(4) {
	case 0:
		p.steps = append(p.steps, "kill -9")
		p.kill()
		p.serveAgain()
	case 1:
		if p.edit(p.rand.IntN(wrongEdits)) { // which serve corrects by itself
			p.steps = append(p.steps, "edit")
			break
		}
		fallthrough
	default:
		p.refreshAll()
	}
	p.eventually()
}

// eventually waits until the spec and the kubelet's list are right.
func (p *processes) eventually() {
	await.Until(p.t, "it is right", func() error { return errors.Join(p.checkSpec(), p.checkList(p.kubelet.listed())) })
}

// TestAWorldOfProcesses takes 100 steps, 1,000 in .ci/long.
func TestAWorldOfProcesses(t *testing.T) {
	steps, seed := long.Steps(t, 100), long.Rand(t).Uint64()
	const worlds = 5
	for i := range uint64(worlds) {
		t.Run(fmt.Sprint("world ", i), func(t *testing.T) {
			t.Parallel()
			p := newProcesses(t, rand.New(rand.NewPCG(seed, i)))
			p.refreshAll()
			p.eventually()
			for range steps / worlds {
				p.step()
			}
		})
	}
}

// TestACordonIsToldAtOnce: the kubelet is told of a change of the file, though the next scan is ten seconds away; and no spec is written
// for it.
func TestACordonIsToldAtOnce(t *testing.T) {
	p := newProcesses(t, rand.New(rand.NewPCG(1, 2)))
	p.refreshAll()
	p.kill()
	p.serving = p.command("serve", "--interval", "10s", "--listen", "", "--plugin-dir", "/kubelet")
	if err := p.serving.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually()
	specs := p.written("var/run/cdi")
	id := p.ids()[1]
	var took []time.Duration
	for round := range 9 {
		command, want := p.command("cordon", "lpu1", "--reason", "a test"), api.Unhealthy
		if round%2 == 1 {
			command, want = p.command("uncordon", "lpu1"), api.Healthy
		}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		info, err := os.Stat(filepath.Join(p.root, "var/lib/lpuctl/cordon.json"))
		if err != nil {
			t.Fatal(err)
		}
		start := info.ModTime()
		await.For(t, fmt.Sprint(id, " is ", want), func() bool { return p.kubelet.listed()[id] == want })
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	t.Logf("from the change of the file to the kubelet, at most: %v", took)
	if after := p.written("var/run/cdi"); !slices.Equal(specs, after) {
		t.Errorf("the spec was written:\n%v\n%v", specs, after)
	}
}
