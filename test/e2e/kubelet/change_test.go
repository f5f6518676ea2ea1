package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// kill kills the container of a static pod, as when its program crashes. The kubelet starts it again and does not ask the plugin.
func (b *bed) kill(pod string) {
	b.t.Helper()
	b.killContainer(pod + "-" + nodeName)
}

// killContainer kills the container of a pod.
func (b *bed) killContainer(pod string) {
	b.t.Helper()
	client := cri.NewRuntimeServiceClient(machine.Dial(b.t, containerd))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: b.running(ctx, client, pod)}); err != nil {
		b.t.Fatal(err)
	}
}

// running is the id of the only container of a pod that runs.
func (b *bed) running(ctx context.Context, client cri.RuntimeServiceClient, pod string) string {
	b.t.Helper()
	list, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	}})
	if err != nil || len(list.Containers) != 1 {
		b.t.Fatalf("the containers of %s: %v %v", pod, list.GetContainers(), err)
	}
	return list.Containers[0].Id
}

// do fails the test if a change of the machine fails.
func (b *bed) do(changes ...error) {
	b.t.Helper()
	if err := errors.Join(changes...); err != nil {
		b.t.Fatal(err)
	}
}

// setOffline says for the driver of a card whether it holds the card offline, as it does while the card is reset.
func (b *bed) setOffline(lpu int, offline string) {
	b.t.Helper()
	machine.Write(b.t, filepath.Join(nodeRoot, b.node.Card(lpu).Dir, "dev_offline"), offline+"\n")
}

// TestLostLPU: a card that is gone shows in the state of the pod that has it. When the pod's container is started again meanwhile it
// gets no node at all, and not that of another card either, which has the name now. When the card is back so is the pod.
func TestLostLPU(t *testing.T) {
	b := newBed(t)
	b.serve()
	b.waitAllocatable(8)
	got := b.check(t, b.run("pod", 2), 2, true)
	lost, free := got[0], 7
	waitHealth := func(want string) {
		t.Helper()
		await.Until(t, "the card is "+want, func() error {
			p, err := b.pod("pod")
			if health := p.health(); err == nil && (health[b.id(lost)] != want || health[b.id(got[1])] != "Healthy") {
				err = fmt.Errorf("%v", health)
			}
			return err
		})
	}
	waitHealth("Healthy")
	b.do(b.node.Unplug(lost), b.node.SwapNodes(lost, free))
	b.waitAllocatable(7)
	waitHealth("Unhealthy")
	b.kill("pod")
	await.Until(t, "the container is refused", func() error {
		p, err := b.pod("pod")
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			if strings.Contains(c.State.Waiting.Message, "unresolvable CDI devices "+resource+"="+b.id(lost)) {
				return nil
			}
		}
		return fmt.Errorf("%+v", p.Status)
	})
	b.do(b.node.Replug(lost))
	b.check(t, b.inspectAgain("pod-"+nodeName, 1), 2, true)
	b.waitAllocatable(8)
	waitHealth("Healthy")
}

// TestSwappedNodes: when the nodes of two cards are exchanged under pods that run, each pod has its own card when its container is
// started again.
func TestSwappedNodes(t *testing.T) {
	b := newBed(t)
	b.serve()
	b.waitAllocatable(8)
	x, y := b.check(t, b.run("x", 1), 1, true)[0], b.check(t, b.run("y", 1), 1, true)[0]
	for restarts, swap := range []func() error{
		func() error { return b.node.SwapNodes(x, y) },
		func() error { // the names stay
			ofX, ofY := b.node.Card(x).Numbers, b.node.Card(y).Numbers
			return errors.Join(b.node.Renumber(x, simulate.Numbers{Major: 240}), b.node.Renumber(y, ofX), b.node.Renumber(x, ofY))
		},
	} {
		b.do(swap())
		b.waitScans()
		for pod, want := range map[string]int{"x": x, "y": y} {
			b.kill(pod)
			if got := b.check(t, b.inspectAgain(pod+"-"+nodeName, restarts+1), 1, true); got[0] != want {
				t.Errorf("%s has LPU %d, want %d", pod, got[0], want)
			}
		}
	}
}

// TestGrace: while a card is being reset, which it need not survive, it is still listed as healthy, but pods get others.
func TestGrace(t *testing.T) {
	b := newBed(t)
	b.serve()
	b.waitAllocatable(8)
	reset := b.check(t, b.run("first", 1), 1, true)[0] // the one that would be preferred
	b.remove("first")
	b.setOffline(reset, "1")
	b.waitScans()
	for i := range 6 {
		b.put(fmt.Sprintf("pod%d", i), 1)
	}
	for i := range 6 {
		if got := b.check(t, b.inspect(fmt.Sprintf("pod%d-%s", i, nodeName)), 1, true); got[0] == reset {
			t.Errorf("pod%d has LPU %d, which is being reset", i, reset)
		}
	}
	if n, err := b.allocatable(); n != 8 || err != nil {
		t.Errorf("%d LPUs are allocatable: %v", n, err)
	}
}

// list are the ids of the LPUs that a plugin offers as healthy, sorted, if it is the only one.
func (b *bed) list() (ids []string, err error) {
	sockets, _ := filepath.Glob("/var/lib/kubelet/device-plugins/lpuctl-*.sock") // fails on a bad pattern only
	if len(sockets) != 1 {
		return nil, fmt.Errorf("there are the sockets %v", sockets)
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	stream, err := deviceplugin.NewDevicePluginClient(machine.Dial(b.t, sockets[0])).ListAndWatch(ctx, &deviceplugin.Empty{})
	if err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	for _, d := range answer.GetDevices() {
		if d.Health == deviceplugin.Healthy {
			ids = append(ids, d.ID)
		}
	}
	slices.Sort(ids)
	return ids, err
}

// TestTwoInstances: of two instances either may end, and the kubelet then has the list of the other. A card that is being reset when
// the new one starts is as healthy for it as it was for the old one.
func TestTwoInstances(t *testing.T) {
	const sick, gone, reset = 1, 3, 5
	b := newBed(t)
	for _, c := range []struct {
		name    string
		args    []string
		newEnds bool
	}{
		{"the old one ends", nil, false},
		{"the new one ends while it stands by", nil, true},
		{"the old one ends, with overlap", []string{"--overlap"}, false},
		{"the new one ends, with overlap", []string{"--overlap"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func(outer *testing.T) { b.t = outer }(b.t)
			b.t = t
			var all []string
			for i := range b.node.LPUs() {
				all = append(all, b.id(i))
			}
			old := b.serve(c.args...)
			b.waitAllocatable(8)
			b.setOffline(reset, "1")
			b.waitScans()
			next := b.serve(c.args...)
			ends, stays := old, next
			if c.newEnds {
				ends, stays = next, old
			}
			if c.args == nil {
				waitSaid(t, next, "another instance serves")
			} else {
				waitRegistered(t, next)
				b.disagree(ends, sick, gone)
				all = slices.Delete(all, gone, gone+1)
			}
			ends.Stop(unix.SIGTERM)
			await.Until(t, "the kubelet has the list of the other", func() error {
				kubelet, err := b.healthy()
				plugin, listErr := b.list()
				if !slices.Equal(kubelet, all) || !slices.Equal(plugin, all) {
					return errors.Join(err, listErr, fmt.Errorf("the kubelet has %v, the plugin %v, want %v", kubelet, plugin, all))
				}
				return nil
			})
			stays.Stop(unix.SIGTERM)
			b.setOffline(reset, "0")
			if c.args != nil {
				b.do(b.node.Replug(gone))
			}
		})
	}
}

// disagree makes the list that the kubelet has last of two instances that of the one that is about to end, and another one than that
// of the other, to which a card is healthy again already.
func (b *bed) disagree(ends *machine.Daemon, sick, gone int) {
	b.t.Helper()
	b.do(b.node.Unbind(sick))
	waitSaid(b.t, ends, fmt.Sprintf("lpu=lpu%d health=Unhealthy", sick)) // and so does not hold the lock of the spec any more
	b.waitAllocatable(7)
	b.do(unix.Kill(ends.PID(), unix.SIGSTOP), b.node.Bind(sick))
	b.waitAllocatable(8)
	b.do(b.node.Unplug(gone))
	b.waitAllocatable(7)
	b.do(unix.Kill(ends.PID(), unix.SIGCONT))
	b.waitAllocatable(6)
}
