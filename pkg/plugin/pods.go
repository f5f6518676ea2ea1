package plugin

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// DefaultPodResources is the socket where the kubelet tells which containers have which
// devices (k8s.io/kubernetes pkg/kubelet/apis/podresources). Only root may connect to it.
const DefaultPodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// PodResources are the sockets where the kubelets of distributions have it:
// [DefaultPodResources], and those of k0s and MicroK8s.
func PodResources() []string {
	return []string{
		DefaultPodResources,
		"/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
		"/var/snap/microk8s/common/var/lib/kubelet/pod-resources/kubelet.sock",
	}
}

// Times and sizes of asking the kubelet. What it said counts until it is older than
// [node.MaxAge].
const (
	podsInterval  = 10 * time.Second
	podsTimeout   = 5 * time.Second
	podsAnswerMax = 16 << 20 // bytes; of 10,000 pods it is 2 MiB
)

// Said is what the kubelet said of the LPUs of pods at one moment. It does not change. The
// zero value says that no pod has an LPU.
type Said struct {
	readAt time.Time // zero if no metrics are made of it
	// allocatable are the ids of devices that the kubelet would hand out, whether or not a
	// container has them.
	allocatable map[string]bool
	holders     map[string]container // by device id
	claims      map[string]*claimed  // of the DRA driver, by uid
}

// container names a container of a pod.
type container struct{ namespace, pod, name string }

func compareContainers(a, b container) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod), cmp.Compare(a.name, b.name))
}

// podReader asks the kubelet for the pods that have LPUs, again and again.
type podReader struct {
	latest atomic.Pointer[Said] // nil before the first answer
	pulse  node.Pulse           // of FollowPods
	logged string               // the code of the error that was logged last; "" after an answer
}

// FollowPods keeps asking the kubelet behind a socket which containers have which LPUs,
// for ring tables and, if metrics is true, for the metrics, until ctx ends. Nothing else
// depends on the answers. If socket is "" it does nothing.
func (s *Server) FollowPods(ctx context.Context, socket string, metrics bool) {
	if socket == "" {
		return
	}
	defer s.pods.latest.Store(nil)
	conn, err := dialPods(socket)
	if err != nil {
		s.Log.Error("the kubelet cannot be asked for pods", "error", err)
		return
	}
	defer func() { _ = conn.Close() }()
	client := podresources.NewPodResourcesListerClient(conn)
	defer s.pods.pulse.Rest()
	for ctx.Err() == nil {
		s.pods.pulse.Beat(time.Now())
		if metrics {
			s.readPods(ctx, client)
		} else if read, err := askForPods(ctx, client, s.Resource); err == nil {
			s.Plugin.putTables(read.holders)
		}
		host.WaitBeat(ctx, podsInterval)
	}
}

// dialPods connects to a socket when something is asked, and again when the kubelet was
// away.
func dialPods(socket string) (*grpc.ClientConn, error) {
	return dial(socket,
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, MaxDelay: podsInterval / 2}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(podsAnswerMax)))
}

// readPods asks the kubelet once. It logs an error when its code changes, and that it is
// over.
func (s *Server) readPods(ctx context.Context, client podresources.PodResourcesListerClient) {
	text := ""
	read, err := askForPods(ctx, client, s.Resource)
	if err == nil {
		read.readAt = s.Plugin.Node.Now()
		s.pods.latest.Store(read)
		s.Plugin.putTables(read.holders)
	} else {
		text = status.Code(err).String() // one error has several texts
	}
	switch {
	case ctx.Err() != nil || text == s.pods.logged:
	case err != nil:
		s.Log.Warn("the kubelet does not say which pods have LPUs; metrics of pods are left out", "error", err)
	default:
		s.Log.Info("the kubelet says which pods have LPUs")
	}
	s.pods.logged = text
}

// askForPods asks the kubelet once for the containers that have devices of a resource, ""
// is any resource, or claims of the DRA driver. If it names several for one device, which
// it does for restartable init containers, the first by name counts.
func askForPods(ctx context.Context, client podresources.PodResourcesListerClient, resource string) (*Said, error) {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	allocatable, err := patiently(ctx, client.GetAllocatableResources, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, err
	}
	list, err := patiently(ctx, client.List, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	of := func(d *podresources.ContainerDevices) bool { return resource == "" || d.GetResourceName() == resource }
	s := &Said{allocatable: map[string]bool{}, holders: map[string]container{}, claims: map[string]*claimed{}}
	for _, d := range allocatable.GetDevices() {
		if !of(d) {
			continue
		}
		for _, id := range d.GetDeviceIds() {
			s.allocatable[id] = true
		}
	}
	for _, pod := range list.GetPodResources() {
		for _, c := range pod.GetContainers() {
			by := container{pod.GetNamespace(), pod.GetName(), c.GetName()}
			for _, d := range c.GetDevices() {
				if of(d) {
					s.hold(by, d.GetDeviceIds())
				}
			}
			for _, r := range c.GetDynamicResources() {
				s.holdClaim(by, r)
			}
		}
	}
	return s, nil
}

// patiently makes a call again while the kubelet has too many of them, until ctx ends. It
// takes ten at once, and a hundred a second, of all programs together (k8s.io/kubernetes
// pkg/kubelet/apis/grpc).
func patiently[In, Out any](ctx context.Context, call func(context.Context, In, ...grpc.CallOption) (Out, error), in In) (Out, error) {
	for {
		out, err := call(ctx, in)
		if said := status.Convert(err); said.Code() != codes.ResourceExhausted || said.Message() != rateLimited {
			return out, err // also one that is too large, which has the same code
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(20*time.Millisecond + rand.N(30*time.Millisecond)): // not all programs at once
		}
	}
}

// rateLimited is what the kubelet says to a call too many.
const rateLimited = "rejected by rate limit"

// Pods asks the kubelet which containers have LPUs: from a device plugin, whatever the
// resource is called there, or by claims. It is what plugin and DRA driver have to know
// of each other's pods ([owner.Gate]).
type Pods struct {
	Socket string // of the kubelet, such as [DefaultPodResources] below the root
}

// Ask asks the kubelet.
func (p *Pods) Ask(ctx context.Context) (*Said, error) {
	conn, err := dialPods(p.Socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	said, err := askForPods(ctx, podresources.NewPodResourcesListerClient(conn), "")
	if err != nil {
		why := status.Convert(err).Message()
		if strings.Contains(why, "error reading server preface") { // gRPC's words for it
			why = "no answer at " + p.Socket + ", which takes connections"
		}
		return nil, fmt.Errorf("the kubelet does not say which pods have LPUs: %s", why)
	}
	return said, nil
}

// From returns a function that asks, and returns a part of the answer.
func From[T any](ask func(context.Context) (*Said, error), part func(*Said) T) func(context.Context) (T, error) {
	return func(ctx context.Context) (answer T, err error) {
		said, err := ask(ctx)
		if err != nil {
			return answer, err
		}
		return part(said), nil
	}
}

// Holders is InPods, and the LPUs that the kubelet would still give to a pod: while the
// DRA driver is the owner, these are of a device plugin that does not follow it, or has
// not yet.
func (s *Said) Holders() map[pci.Address]string {
	holders := s.InPods()
	for id := range s.allocatable {
		if a, err := cdi.ParseAddressName(id); err == nil && holders[a] == "" {
			holders[a] = "the kubelet, which still offers it to pods,"
		}
	}
	return holders
}

// InPods returns who has which LPU from a device plugin: "pod default/a, container main".
// What has another id is none of our LPUs.
func (s *Said) InPods() map[pci.Address]string {
	holders := map[pci.Address]string{}
	for id, c := range s.holders {
		if a, err := cdi.ParseAddressName(id); err == nil {
			holders[a] = fmt.Sprintf("pod %s/%s, container %s", c.namespace, c.pod, c.name)
		}
	}
	return holders
}

func (s *Said) hold(c container, ids []string) {
	for _, id := range ids {
		if other, held := s.holders[id]; !held || compareContainers(c, other) < 0 {
			s.holders[id] = c
		}
	}
}

// podMetrics say which containers have which LPUs, and what is left for others. There are
// none while the kubelet does not answer. Devices that the node does not have are left
// out, so that there are never more samples than LPUs.
func (s *Server) podMetrics() node.Metrics {
	p, state := s.pods.latest.Load(), s.Plugin.state.Load()
	if p == nil || s.Plugin.Node.Now().Sub(p.readAt) > node.MaxAge {
		return nil
	}
	var all node.Metrics
	holder := all.Gauge("lpuctl_container_lpu", "Which container has the LPU, by the kubelet; always 1.")
	unconnected := all.Gauge("lpuctl_container_unconnected_lpus",
		"How many LPUs a container has that are not all connected to each other.")
	free := all.Gauge("lpuctl_free_lpus", "LPUs that the kubelet can give to a container.")
	readAt := all.Gauge("lpuctl_pod_resources_timestamp_seconds", "When the kubelet named the containers, in Unix time.")
	readAt.Set(float64(p.readAt.UnixMilli()) / 1000)
	cards := map[container][]int{}
	var left []int
	for _, d := range state.Devices {
		c, held := p.holders[d.ID]
		card, present := state.Cards[d.ID]
		if held {
			holder.SetBool(true, "lpu", d.Name, "device", d.ID, "namespace", c.namespace, "pod", c.pod, "container", c.name)
		}
		switch {
		case !present:
		case held:
			cards[c] = append(cards[c], card)
		case p.allocatable[d.ID] && d.Offered():
			left = append(left, card)
		}
	}
	fabric := state.Inventory.Cabled()
	for c, has := range cards {
		if _, pieces := fabric.Order(has); pieces > 1 && fabric.Cabled() {
			unconnected.Set(float64(len(has)), "namespace", c.namespace, "pod", c.pod, "container", c.name)
		}
	}
	free.Set(float64(len(left)))
	return append(all, state.placeable(left)...)
}

// placeable says what could be placed on LPUs that are free: the longest arc, and how
// many containers of each size would get connected LPUs. Without a ring table nothing is
// known of that.
func (s *state) placeable(free []int) node.Metrics {
	if !s.Fabric.Cabled() {
		return nil
	}
	var all node.Metrics
	longest := all.Gauge("lpuctl_longest_free_arc_lpus", "How many LPUs a container can have at most that are connected.")
	placeable := all.Gauge("lpuctl_placeable", "How many containers of this size could have connected LPUs at the same time.")
	arcs := s.Fabric.FreeArcs(free)
	most := 0
	for _, arc := range arcs {
		most = max(most, len(arc))
	}
	longest.Set(float64(most))
	for _, size := range s.sizes() {
		n := 0
		for _, arc := range arcs {
			n += len(arc) / size
		}
		placeable.Set(float64(n), "size", strconv.Itoa(size))
	}
	return all
}

// sizes are those that metrics tell of: the powers of two for which a ring has room when
// all is free, and whole rings. No metric is 0 only because the node was never cabled for
// a size.
func (s *state) sizes() (sizes []int) {
	for _, r := range s.Inventory.Rings {
		for size := 1; size <= len(r.Members); size *= 2 {
			sizes = append(sizes, size)
		}
		sizes = append(sizes, len(r.Members))
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}
