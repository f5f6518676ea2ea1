package plugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
)

// podLister answers as the kubelet does where it tells of the devices of pods.
type podLister struct {
	podresources.UnimplementedPodResourcesListerServer
	pods  []*podresources.PodResources
	ids   []string // that are allocatable
	hangs bool
	busy  bool // every other call is one too many
	calls atomic.Int64

	asked  atomic.Int64 // how often it was asked for pods
	server *grpc.Server
}

func (l *podLister) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	l.asked.Add(1)
	if err := l.refused(); err != nil {
		return nil, err
	}
	if l.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &podresources.ListPodResourcesResponse{PodResources: l.pods}, nil
}

func (l *podLister) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	if err := l.refused(); err != nil {
		return nil, err
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: DefaultResource, DeviceIds: l.ids}, {ResourceName: "example.com/other", DeviceIds: []string{"x"}},
	}}, nil
}

// refused returns an error for a call too many.
func (l *podLister) refused() error {
	if l.calls.Add(1)%2 == 1 && l.busy {
		return status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return nil
}

// run adds a pod with one container that has these devices, which the kubelet names one by one, as it does where they have NUMA nodes.
func (l *podLister) run(namespace, pod string, ids ...string) {
	c := &podresources.ContainerResources{Name: "main"}
	for _, id := range ids {
		c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: DefaultResource, DeviceIds: []string{id}})
	}
	l.pods = append(l.pods, &podresources.PodResources{Name: pod, Namespace: namespace, Containers: []*podresources.ContainerResources{c}})
}

// serve serves on a socket, and returns a client that asks it.
func (l *podLister) serve(t testing.TB, dir string) podresources.PodResourcesListerClient {
	t.Helper()
	socket := filepath.Join(dir, "pods")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	l.server = server
	podresources.RegisterPodResourcesListerServer(server, l)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := dialPods(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return podresources.NewPodResourcesListerClient(conn)
}

// TestPodMetrics: who has which LPU, who has LPUs that are not connected, and what is left.
func TestPodMetrics(t *testing.T) {
	r, k, i := served(t, rules137)
	lister := &podLister{ids: slices.Clone(orionIDs)}
	client := lister.serve(t, k.dir)
	now := time.Now()
	r.plugin.Node.Now = func() time.Time { return now }
	want := func(value float64, family string, labels ...string) {
		t.Helper()
		if got := i.value(family, labels...); got != value {
			t.Errorf("%s%v is %v, not %v", family, labels, got, value)
		}
	}
	i.noPods("nobody was asked")
	r.scan()
	i.server.readPods(t.Context(), client)
	want(8, "lpuctl_free_lpus")
	want(8, "lpuctl_longest_free_arc_lpus")
	want(1, "lpuctl_placeable", "size", "8")

	lister.run("ml", "pair", ids(0, 1)...)
	lister.run("ml", "apart", ids(3, 6)...)
	lister.run("other", "of another node's", "pci-0000-ff-00.0")
	i.server.readPods(t.Context(), client)
	want(1, "lpuctl_container_lpu", "lpu", "lpu0", "device", orionIDs[0], "namespace", "ml", "pod", "pair", "container", "main")
	want(2, "lpuctl_container_unconnected_lpus", "namespace", "ml", "pod", "apart", "container", "main")
	want(-1, "lpuctl_container_unconnected_lpus", "namespace", "ml", "pod", "pair", "container", "main")
	want(4, "lpuctl_free_lpus") // 2, 4 and 5, 7
	want(2, "lpuctl_longest_free_arc_lpus")
	want(4, "lpuctl_placeable", "size", "1")
	want(1, "lpuctl_placeable", "size", "2")
	want(0, "lpuctl_placeable", "size", "4")

	lister.pods = lister.pods[:1] // the pod has ended
	lister.ids = slices.DeleteFunc(lister.ids, func(id string) bool { return id == orionIDs[7] })
	i.server.readPods(t.Context(), client)
	want(-1, "lpuctl_container_unconnected_lpus", "namespace", "ml", "pod", "apart", "container", "main")
	want(5, "lpuctl_longest_free_arc_lpus") // 2 to 6

	lister.pods = nil
	for n := range 10000 {
		lister.run("many", fmt.Sprintf("pod\"\n%05d", n), orionIDs[n%8])
	}
	i.server.readPods(t.Context(), client)
	all, err := i.server.families()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all["lpuctl_container_lpu"].Metric); n != 8 {
		t.Errorf("%d samples of 10,000 pods", n)
	}
	now = now.Add(node.MaxAge + time.Second)
	i.noPods("the answer is old")
}

// noPods sees that there is no metric of pods, which is not the same as 0.
func (i *instance) noPods(when string) {
	i.t.Helper()
	all, err := i.server.families()
	if err != nil {
		i.t.Fatal(err)
	}
	for _, name := range []string{
		"lpuctl_container_lpu", "lpuctl_container_unconnected_lpus", "lpuctl_free_lpus", "lpuctl_longest_free_arc_lpus", "lpuctl_placeable",
		"lpuctl_pod_resources_timestamp_seconds",
	} {
		if all[name] != nil {
			i.t.Errorf("%s: %v", when, all[name])
		}
	}
}

// TestPodsOfAKubeletThatIsRestarted: its socket is absent, comes, goes with it and is made anew. What it said holds for as long as it may,
// and then there are no metrics, until it answers again.
func TestPodsOfAKubeletThatIsRestarted(t *testing.T) {
	t.Parallel()
	r, dir := orion(t), t.TempDir()
	var passed atomic.Int64
	r.plugin.Node.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	r.scan()
	i := &instance{t: t, server: &Server{Plugin: r.plugin, Resource: DefaultResource, Log: r.plugin.log}}
	conn, err := dialPods(filepath.Join(dir, "pods"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := podresources.NewPodResourcesListerClient(conn)
	ask := func() { i.server.readPods(t.Context(), client) }
	answers := func(free float64) func() bool {
		return func() bool {
			ask()
			return i.value("lpuctl_free_lpus") == free
		}
	}
	ask()
	i.noPods("it has not started yet")
	kubelet := &podLister{ids: orionIDs}
	kubelet.serve(t, dir)
	await.For(t, "it has started", answers(8))

	kubelet.server.Stop() // which removes the socket
	ask()
	if got := i.value("lpuctl_free_lpus"); got != 8 {
		t.Errorf("what it has just said does not hold any more: %v", got)
	}
	passed.Add(int64(node.MaxAge + time.Second))
	ask()
	i.noPods("it has been away for long")
	kubelet = &podLister{ids: orionIDs[:7]}
	kubelet.run("ml", "pair", ids(0, 1)...)
	kubelet.serve(t, dir)
	await.For(t, "it is there again", answers(5))
	log := r.log.String()
	if away, back := strings.Count(log, "does not say which pods"), strings.Count(log, "the kubelet says which pods"); away != 2 || back != 2 {
		t.Errorf("it is said %d times that it is away, and %d times that it is back:\n%s", away, back, log)
	}
}

// TestPlaceableSizes: no size is told of that is longer than the longest ring, on which nobody could ever place it.
func TestPlaceableSizes(t *testing.T) {
	for rings, want := range map[string]string{
		`["lpu0","lpu1","lpu2","lpu3"],["lpu4","lpu5","lpu6","lpu7"]`: "1=8 2=4 4=2",
		`["lpu0","lpu1","lpu2"],["lpu3","lpu4","lpu5","lpu6","lpu7"]`: "1=8 2=3 3=2 4=1 5=1",
	} {
		r := orion(t)
		table := `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "RingTable", "rings": [` + rings + `]}`
		if err := write(filepath.Join(r.root, "etc/lpuctl"), "ring.yaml", table); err != nil {
			t.Fatal(err)
		}
		r.scan()
		server := &Server{Plugin: r.plugin, Resource: DefaultResource, Log: r.plugin.log}
		server.readPods(t.Context(), (&podLister{ids: orionIDs}).serve(t, t.TempDir()))
		all, err := server.families()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range all["lpuctl_placeable"].GetMetric() {
			got = append(got, fmt.Sprint(m.Label[0].GetValue(), "=", m.GetGauge().GetValue()))
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", rings, text, want)
		}
	}
}

// TestPodsOfAKubeletThatHangs: it is not waited for long, nothing is served from it, and the log says so once.
func TestPodsOfAKubeletThatHangs(t *testing.T) {
	t.Parallel()
	r, k, i := served(t, rules137)
	client := (&podLister{hangs: true}).serve(t, k.dir)
	for range 2 {
		i.server.readPods(t.Context(), client)
	}
	if i.value("lpuctl_free_lpus") != -1 || strings.Count(r.log.String(), "does not say which pods have LPUs") != 1 {
		t.Errorf("log: %s", r.log)
	}
}

// TestFollowPods: the socket may come later, and what was known is forgotten when nobody follows it any more.
func TestFollowPods(t *testing.T) {
	t.Parallel()
	r, k, i := served(t, rules137)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.server.FollowPods(ctx, filepath.Join(k.dir, "pods"), true)
	}()
	await.For(t, "it has asked nobody", func() bool { return strings.Contains(r.log.String(), "does not say which pods have LPUs") })
	(&podLister{ids: orionIDs}).serve(t, k.dir)
	await.For(t, "it has asked", func() bool { return i.value("lpuctl_free_lpus") == 8 })
	cancel()
	<-ended
	if i.value("lpuctl_free_lpus") != -1 {
		t.Error("it says what it does not follow")
	}
}

// TestHungPodsAreNoReasonToStartAgain: while the kubelet does not answer, the loop that asks it turns, and serve is alive.
func TestHungPodsAreNoReasonToStartAgain(t *testing.T) {
	t.Parallel()
	r, dir := orion(t), t.TempDir()
	r.scan()
	server := &Server{Plugin: r.plugin, Resource: DefaultResource, Log: r.plugin.log}
	(&podLister{hangs: true}).serve(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.FollowPods(ctx, filepath.Join(dir, "pods"), true)
	}()
	await.For(t, "it has asked", func() bool { return strings.Contains(r.log.String(), "does not say which pods have LPUs") })
	server.pods.pulse.Beat(time.Now().Add(-time.Hour))
	if server.Alive() == nil {
		t.Error("it has not asked for an hour, and is alive")
	}
	await.For(t, "it asks again", func() bool { return server.Alive() == nil })
	cancel()
	<-ended
}

// TestPodsHolders: LPUs of any resource count, and those that the kubelet would still give away; other devices do not.
func TestPodsHolders(t *testing.T) {
	dir := t.TempDir()
	lister := &podLister{ids: ids(0, 1), pods: []*podresources.PodResources{{
		Name: "a", Namespace: "ml", Containers: []*podresources.ContainerResources{{Name: "main", Devices: []*podresources.ContainerDevices{
			{ResourceName: "example.com/renamed", DeviceIds: ids(1, 2)},
			{ResourceName: "example.com/other", DeviceIds: []string{"0000:43:00.1", "x"}},
		}}},
	}}}
	p := &Pods{Socket: filepath.Join(dir, "pods")}
	if got, err := p.Ask(t.Context()); err == nil {
		t.Errorf("without a kubelet: %v", got)
	}
	lister.serve(t, dir)
	said, err := p.Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := func(held map[pci.Address]string) (all []string) {
		for a, holder := range held {
			all = append(all, a.String()+": "+holder)
		}
		slices.Sort(all)
		return all
	}
	pods := []string{"0000:44:00.1: pod ml/a, container main", "0000:45:00.1: pod ml/a, container main"}
	if got := text(said.InPods()); !slices.Equal(got, pods) {
		t.Errorf("in pods: %q", got)
	}
	want := append([]string{"0000:43:00.1: the kubelet, which still offers it to pods,"}, pods...)
	if got := text(said.Holders()); !slices.Equal(got, want) {
		t.Errorf("holders: %q", got)
	}
}

// TestPodsOfABusyKubelet: a call that is one too many for the kubelet is made again.
func TestPodsOfABusyKubelet(t *testing.T) {
	dir := t.TempDir()
	lister := &podLister{ids: ids(0), busy: true}
	lister.serve(t, dir)
	said, err := (&Pods{Socket: filepath.Join(dir, "pods")}).Ask(t.Context())
	if err != nil || len(said.Holders()) != 1 || lister.asked.Load() != 2 {
		t.Errorf("%v, %v, asked %d times for pods", said, err, lister.asked.Load())
	}
}

// TestRingTablesWithoutMetrics: without metrics of pods their ring tables are put in place all the same.
func TestRingTablesWithoutMetrics(t *testing.T) {
	t.Parallel()
	r, k, i := served(t, rules137)
	(&podLister{ids: orionIDs, pods: []*podresources.PodResources{{
		Name: "a", Namespace: "ml", Containers: []*podresources.ContainerResources{{Name: "main", Devices: []*podresources.ContainerDevices{
			{ResourceName: DefaultResource, DeviceIds: ids(6, 7, 0, 1)},
		}}},
	}}}).serve(t, k.dir)
	table := filepath.Join(r.root, cdi.RingTableOf(r.plugin.state.Load().Inventory, []int{6, 7, 0, 1}).HostPath)
	if err := os.RemoveAll(filepath.Dir(table)); err != nil { // as a boot does
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.server.FollowPods(ctx, filepath.Join(k.dir, "pods"), false)
	}()
	await.For(t, "the table is there", func() bool {
		_, err := os.Stat(table)
		return err == nil
	})
	cancel()
	<-ended
	if i.value("lpuctl_free_lpus") != -1 {
		t.Error("there are metrics of pods")
	}
}
