//go:build dra

package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/dra/driver"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
)

const nodeName = "worker-1"

// cluster is a simulated server with eight LPUs, its kubelet's directory, and what is in an API server.
type cluster struct {
	*testing.T
	root, kubelet string
	machine       *simulate.Machine
	client        *fake.Clientset
	drops         atomic.Value // func(*resourceapi.ResourceSlice, bool): takes out fields that the API server does not store
	pods          atomic.Value // []cdi.Claim: those that pods have
	held          sync.Map     // pci.Address: what the device plugin's pods have
	asked         atomic.Value // func(): called when that has been said
	setApart      health.Cordons
	runtime       atomic.Pointer[node.Runtime] // what the self-check of the container runtime says; nil: there is none
	onCDIOff      node.OnCDIOff
	nodeInterval  time.Duration
	leased        atomic.Pointer[map[pci.Address]string] // nil: nothing is
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, root: filepath.Join(t.TempDir(), "node"), kubelet: shortDir(t)}
	var err error
	if c.machine, err = (simulate.Node{Profile: "orion"}).Start(c.root); err != nil {
		t.Fatal(err)
	}
	c.do(os.MkdirAll(filepath.Join(c.root, "var/run/cdi"), 0o755))
	c.do(os.MkdirAll(driver.RegistryDir(c.kubelet), 0o755))
	c.drops.Store(func(*resourceapi.ResourceSlice, bool) {})
	c.pods.Store([]cdi.Claim{})
	c.asked.Store(func() {})
	c.client = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-1"}})
	c.client.PrependReactor("*", "resourceslices", c.store)
	c.own(owner.DRA)
	return c
}

// shortDir is a directory whose sockets have paths that are short enough.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") //nolint:usetesting // t.TempDir may be too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (c *cluster) do(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) stateDir() string { return filepath.Join(c.root, node.StateDir) }
func (c *cluster) specDir() string  { return filepath.Join(c.root, "var/run/cdi") }

func (c *cluster) own(who owner.Owner) {
	c.Helper()
	_, err := owner.File{Dir: c.stateDir()}.Set(c.Context(), who, "test", false)
	c.do(err)
}

// store does with slices what an API server does and the fake does not: names, versions, dry runs, and fields that are dropped. It knows
// the version v1 alone; of a slice that is not found a client asks all versions.
func (c *cluster) store(action clienttesting.Action) (bool, runtime.Object, error) {
	if kind := action.GetResource(); kind.Version != resourceapi.SchemeGroupVersion.Version {
		return true, nil, apierrors.NewNotFound(kind.GroupResource(), "")
	}
	var slice *resourceapi.ResourceSlice
	dry := false
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		slice, dry = a.Object.(*resourceapi.ResourceSlice), len(a.CreateOptions.DryRun) > 0
	case clienttesting.UpdateActionImpl:
		slice = a.Object.(*resourceapi.ResourceSlice)
	default:
		return false, nil, nil
	}
	slice = slice.DeepCopy()
	if slice.Name == "" {
		slice.Name = slice.GenerateName + fmt.Sprint(versions.Add(1))
	}
	if slice.UID == "" {
		slice.UID = types.UID(fmt.Sprint("slice-", versions.Add(1)))
	}
	slice.ResourceVersion = fmt.Sprint(versions.Add(1))
	c.drops.Load().(func(*resourceapi.ResourceSlice, bool))(slice, dry)
	var err error
	switch tracker, kind := c.client.Tracker(), resourceapi.SchemeGroupVersion.WithResource("resourceslices"); {
	case dry:
	case action.GetVerb() == "create":
		err = tracker.Create(kind, slice, "")
	default:
		err = tracker.Update(kind, slice, "")
	}
	return true, slice, err
}

var versions atomic.Int64

// dropCounters is what an API server does whose gate for counters is off.
func dropCounters(s *resourceapi.ResourceSlice) {
	s.Spec.SharedCounters = nil
	for i := range s.Spec.Devices {
		s.Spec.Devices[i].ConsumesCounters = nil
	}
}

// running is a driver that runs.
type running struct {
	*driver.Driver
	stop func()
}

// start starts a driver as a pod of a UID.
func (c *cluster) start(uid string) *running {
	c.Helper()
	log := slog.New(slog.NewTextHandler(c.Output(), nil))
	n := node.New(log)
	n.Memory.Dir, n.Memory.SetApart = c.stateDir(), c.setApart
	file, err := cdi.Locate(c.root, "/var/run/cdi", cdi.DefaultKind)
	c.do(err)
	boot := host.Now().Boot
	gate := &owner.Gate{
		File: owner.File{Dir: c.stateDir()}, Me: owner.DRA, Log: log,
		Others: func(context.Context) (map[pci.Address]string, error) {
			held := map[pci.Address]string{}
			c.held.Range(func(a, by any) bool { held[a.(pci.Address)] = by.(string); return true })
			c.asked.Load().(func())()
			return held, nil
		},
	}
	gate.Leased = func() (map[pci.Address]string, error) {
		if leased := c.leased.Load(); leased != nil {
			return *leased, nil
		}
		return nil, nil
	}
	n.Gate = gate
	n.Runtime = func() (says node.Runtime) {
		if r := c.runtime.Load(); r != nil {
			says = *r
		}
		return says
	}
	d := driver.New(driver.Options{
		Node: n, Spec: node.Spec{File: file, Options: cdi.Options{Kind: cdi.DefaultKind}},
		Publisher: &dra.Publisher{Options: dra.Options{Node: nodeName}, Path: filepath.Join(c.stateDir(), "dra-slices.json")},
		Claims:    &claim.Store{Root: host.Root(c.root), Dir: c.stateDir(), SpecDir: c.specDir(), BootID: boot},
		Gate:      gate, OnCDIOff: c.onCDIOff,
		InUse:  func(context.Context) ([]cdi.Claim, error) { return c.pods.Load().([]cdi.Claim), nil },
		Client: c.client, Name: nodeName, PodUID: uid, KubeletDir: c.kubelet, NodeInterval: c.nodeInterval, Log: log,
	})
	ctx, cancel := context.WithCancel(c.Context())
	var loops sync.WaitGroup
	watcher := watch.New(c.root, watch.Options{}, host.SinceBoot)
	loops.Go(func() { d.Run(ctx) })
	loops.Go(func() { watcher.Run(ctx, 100*time.Millisecond, func() { d.Update(ctx, watcher.Scan) }) })
	r := &running{Driver: d, stop: sync.OnceFunc(func() { cancel(); loops.Wait() })}
	c.Cleanup(r.stop)
	return r
}

// devices are those that the API server has, by name.
func (c *cluster) devices() map[string]*resourceapi.Device {
	c.Helper()
	list, err := c.client.ResourceV1().ResourceSlices().List(c.Context(), metav1.ListOptions{})
	c.do(err)
	all := map[string]*resourceapi.Device{}
	for i := range list.Items {
		for j := range list.Items[i].Spec.Devices {
			d := &list.Items[i].Spec.Devices[j]
			all[d.Name] = d
		}
	}
	return all
}

// published waits until the driver says that it is ready for the scheduler, and returns a device of a size that begins with an LPU.
func (c *cluster) published(r *running) func(size, lpu int) string {
	c.Helper()
	await.Until(c, "published", func() error {
		if len(c.devices()) == 0 {
			return errors.New("no devices")
		}
		return nil
	})
	return func(size, lpu int) string {
		c.Helper()
		first := strings.NewReplacer(":", "-", ".", "-").Replace(r.Node.Latest().Inventory.LPUs[lpu].Address.String())
		for name := range c.devices() {
			if strings.HasPrefix(name, fmt.Sprintf("lpu%d-%s-", size, first)) {
				return name
			}
		}
		c.Fatalf("no device of %d LPUs begins with lpu%d", size, lpu)
		return ""
	}
}

// dial connects to a socket as the kubelet does.
func (c *cluster) dial(path string) *grpc.ClientConn {
	c.Helper()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.do(err)
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}

// register does what a kubelet does with each socket in its registry, and returns where the drivers answer.
func (c *cluster) register() (endpoints []string) {
	c.Helper()
	await.Until(c, "registered", func() error {
		sockets, _ := filepath.Glob(filepath.Join(driver.RegistryDir(c.kubelet), "*.sock"))
		endpoints = nil
		for _, socket := range sockets {
			client := registerapi.NewRegistrationClient(c.dial(socket))
			info, err := client.GetInfo(c.Context(), &registerapi.InfoRequest{})
			if err == nil {
				_, err = client.NotifyRegistrationStatus(c.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
			}
			if err != nil {
				return err
			}
			endpoints = append(endpoints, info.Endpoint)
		}
		if endpoints == nil {
			return errors.New("no socket")
		}
		return nil
	})
	return endpoints
}

// allocate makes a claim as the scheduler leaves it, with a device for each request.
func (c *cluster) allocate(name string, parameters string, devices ...string) *drapb.Claim {
	c.Helper()
	a := &resourceapi.AllocationResult{}
	for i, device := range devices {
		a.Devices.Results = append(a.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: fmt.Sprint("r", i), Driver: dra.DriverName, Pool: nodeName, Device: device,
		})
	}
	if parameters != "" {
		a.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim,
			DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: dra.DriverName, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
				},
			},
		}}
	}
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", versions.Add(1))
	_, err := c.client.ResourceV1().ResourceClaims("default").Create(c.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: a},
	}, metav1.CreateOptions{})
	c.do(err)
	return &drapb.Claim{Namespace: "default", Name: name, Uid: uid}
}

func (c *cluster) prepare(endpoint string, claims ...*drapb.Claim) *drapb.NodePrepareResourcesResponse {
	c.Helper()
	client := drapb.NewDRAPluginClient(c.dial(endpoint))
	response, err := client.NodePrepareResources(c.Context(), &drapb.NodePrepareResourcesRequest{Claims: claims})
	c.do(err)
	return response
}

func (c *cluster) unprepare(endpoint string, claims ...*drapb.Claim) {
	c.Helper()
	client := drapb.NewDRAPluginClient(c.dial(endpoint))
	response, err := client.NodeUnprepareResources(c.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	c.do(err)
	for _, one := range claims {
		if said := response.Claims[one.Uid].Error; said != "" {
			c.Error(said)
		}
	}
}

// files are the names of the files in the spec directory whose names have a part.
func (c *cluster) files(part string) (names []string) {
	entries, _ := os.ReadDir(c.specDir())
	for _, e := range entries {
		if strings.Contains(e.Name(), part) {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestPublishes(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	c.register()
	await.Until(c, "ready", func() error { _, err := r.Ready(); return err })
	if n := len(c.devices()); n != 25 {
		t.Errorf("%d devices", n)
	}
	c.do(c.machine.Unbind(2))
	await.Until(c, "tainted", func() error {
		have := c.devices()
		if len(have) != 25 || len(have[device(4, 0)].Taints) == 0 || len(have[device(2, 0)].Taints) > 0 {
			return fmt.Errorf("%d devices, and those of lpu2 are not tainted, or others are", len(have))
		}
		return nil
	})
}

// TestWithoutCounters holds that no device of several LPUs is published by an API server that would give its LPUs to others too.
func TestWithoutCounters(t *testing.T) {
	c := newCluster(t)
	c.drops.Store(func(s *resourceapi.ResourceSlice, _ bool) {
		if !strings.HasPrefix(s.Name, "probe") && len(s.Spec.SharedCounters) > 0 {
			t.Error("counters were to be stored")
		}
		dropCounters(s)
	})
	r := c.start("")
	c.published(r)
	for name := range c.devices() {
		if !strings.HasPrefix(name, "lpu1-") {
			t.Errorf("%s is published without counters", name)
		}
	}
}

// TestDroppedFields holds that all is withdrawn when the API server drops what it has not dropped in the probe.
func TestDroppedFields(t *testing.T) {
	c := newCluster(t)
	c.drops.Store(func(s *resourceapi.ResourceSlice, dry bool) {
		if !dry {
			dropCounters(s)
		}
	})
	c.start("")
	await.Until(c, "only single LPUs can be given away", func() error {
		have := c.devices()
		if len(have) == 0 {
			return errors.New("no devices")
		}
		for name, d := range have { // those that somebody may have been given stay, tainted
			if !strings.HasPrefix(name, "lpu1-") && len(d.Taints) == 0 {
				return fmt.Errorf("%s is published without counters", name)
			}
		}
		return nil
	})
}

// TestKubeletStarts holds that the slices come back soon which a kubelet deletes when it starts.
func TestKubeletStarts(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	c.published(r)
	await.Until(c, "ready", func() error {
		c.register()
		_, err := r.Ready()
		return err
	})
	list, err := c.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	c.do(err)
	c.register()
	for i := range list.Items {
		c.do(c.client.ResourceV1().ResourceSlices().Delete(t.Context(), list.Items[i].Name, metav1.DeleteOptions{}))
	}
	await.Until(c, "published again", func() error {
		if n := len(c.devices()); n != 25 {
			return fmt.Errorf("%d devices", n)
		}
		return nil
	})
}

func TestNodeMadeAnew(t *testing.T) {
	c := newCluster(t)
	c.nodeInterval = time.Hour // it is asked because the kubelet has registered the driver
	r := c.start("")
	c.published(r)
	nodes := c.client.CoreV1().Nodes()
	c.do(nodes.Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-2"}}, metav1.CreateOptions{})
	c.do(err)
	c.register() // as the kubelet does that has made it
	await.Until(c, "the slices belong to the new node", func() error {
		list, err := c.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		c.do(err)
		if len(list.Items) != 2 {
			return fmt.Errorf("%d slices", len(list.Items))
		}
		for i := range list.Items {
			if uid := list.Items[i].OwnerReferences[0].UID; uid != "node-2" {
				return fmt.Errorf("a slice belongs to %s", uid)
			}
		}
		return nil
	})
}

func TestPrepare(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	four := c.allocate("four", "", device(4, 0))
	got := c.prepare(endpoint, four).Claims[four.Uid]
	if got.Error != "" || len(got.Devices) != 1 {
		t.Fatal(got)
	}
	names := got.Devices[0].CdiDeviceIds
	if len(names) != 6 || !strings.HasPrefix(names[0], "hyperaccel.ai/lpu=pci-") || !strings.HasPrefix(names[4], "hyperaccel.ai/lpu-claim=") ||
		!strings.HasPrefix(names[5], dra.DriverName+"/metadata=") {
		t.Error(names)
	}
	if again := c.prepare(endpoint, four).Claims[four.Uid]; again.Error != "" || !slices.Equal(again.Devices[0].CdiDeviceIds, names) {
		t.Error("prepared again:", again)
	}
	version := statefile.APIVersion
	for _, x := range []struct {
		name, parameters, device, wants string
	}{
		{"other", "", device(2, 1), "another claim has it: default/four"},
		{"stranger", "", "lpu1-0000-99-00-1-deadbeef", "no such device"},
		{"misspelt", `{"apiVersion":"` + version + `","kind":"LpuConfig","variable":"none"}`, device(2, 4), `unknown field "variable"`},
		{"word", `{"apiVersion":"` + version + `","kind":"LpuConfig","variables":"some"}`, device(2, 4), `can be list or none`},
		{"kind", `{"apiVersion":"v1","kind":"GpuConfig"}`, device(2, 4), `knows only LpuConfig`},
	} {
		one := c.allocate(x.name, x.parameters, x.device)
		said := c.prepare(endpoint, one).Claims[one.Uid].Error
		if !strings.Contains(said, x.wants) || !strings.Contains(said, "default/"+x.name) {
			t.Errorf("%s: %s", x.name, said)
		}
	}
	scattered := c.allocate("scattered", "", device(1, 4), device(1, 6))
	held, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "scattered", metav1.GetOptions{})
	c.do(err)
	held.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	held.Status.Allocation.Devices.Results[1].Request = held.Status.Allocation.Devices.Results[0].Request
	_, err = c.client.ResourceV1().ResourceClaims("default").Update(t.Context(), held, metav1.UpdateOptions{})
	c.do(err)
	if said := c.prepare(endpoint, scattered).Claims[scattered.Uid].Error; !strings.Contains(said, "need not be connected") {
		t.Error("several LPUs by the name of one:", said)
	}
	pair := c.allocate("pair", `{"apiVersion":"`+version+`","kind":"LpuConfig","variables":"none"}`, device(2, 4))
	if said := c.prepare(endpoint, pair).Claims[pair.Uid].Error; said != "" {
		t.Error(said)
	}
	c.unprepare(endpoint, four, pair)
	c.unprepare(endpoint, four)
	if left := append(c.files("claim"), c.files("metadata")...); len(left) > 0 {
		t.Error("left:", left)
	}
}

// TestCordonedIsPreparedByNameOnly: a toleration of everything does not give a cordoned LPU, and
// none gives one that is kept for leases. Who has it keeps it.
func TestCordonedIsPreparedByNameOnly(t *testing.T) {
	c := newCluster(t)
	inv, err := discovery.Scan(t.Context(), c.root, discovery.Options{})
	c.do(err)
	apart := inv.LPUs[6].Address
	c.setApart = health.Cordons{apart: {Reason: "it is set apart for leases (leases.pool)", SetApart: true}}
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	for name, d := range c.devices() {
		if slices.Contains(dra.MembersOf(d), apart) {
			t.Errorf("%s is published", name)
		}
	}
	before := c.allocate("before", "", device(1, 0))
	if said := c.prepare(endpoint, before).Claims[before.Uid].Error; said != "" {
		t.Fatal(said)
	}
	_, _, err = health.ChangeCordons(t.Context(), filepath.Join(c.stateDir(), "cordon.json"), func(all health.Cordons) error {
		for _, lpu := range []int{0, 2} {
			all[r.Node.Latest().Inventory.LPUs[lpu].Address] = health.Cordon{Reason: "a cable", By: "alice(1000)"}
		}
		return nil
	})
	c.do(err)
	await.Until(c, "cordoned", func() error {
		if r.Node.Latest().Inventory.LPUs[2].Cordoned == nil {
			return errors.New("not yet")
		}
		return nil
	})
	if said := c.prepare(endpoint, before).Claims[before.Uid].Error; said != "" {
		t.Error("who has it:", said)
	}
	const exists = resourceapi.DeviceTolerationOpExists
	const schedule, execute = resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute
	pair := device(2, 2)
	for name, x := range map[string]struct {
		device   string
		tolerate []resourceapi.DeviceToleration
		wants    string
	}{
		"nothing": {pair, nil, "lpu2 (0000:45:00.1): it is cordoned since"},
		"everything": {pair, []resourceapi.DeviceToleration{{Operator: exists}},
			"kubectl --namespace default delete pod p; or on the node: lpuctl uncordon lpu2"},
		"another":   {pair, []resourceapi.DeviceToleration{{Key: dra.TaintUnhealthy, Operator: exists}}, "cordoned"},
		"eviction":  {pair, []resourceapi.DeviceToleration{{Key: dra.TaintCordoned, Operator: exists, Effect: execute}}, "cordoned"},
		"other-lpu": {pair, []resourceapi.DeviceToleration{{Key: dra.TaintCordoned, Value: "pci-0000-43-00.1"}}, "cordoned"},
		"by-name":   {pair, []resourceapi.DeviceToleration{{Key: dra.TaintCordoned, Operator: exists, Effect: schedule}}, ""},
		"by-value":  {pair, []resourceapi.DeviceToleration{{Key: dra.TaintCordoned, Value: "pci-0000-45-00.1"}}, ""},
		"leased": {named(apart), []resourceapi.DeviceToleration{{Key: dra.TaintCordoned, Operator: exists}, {Operator: exists}},
			"set apart for leases (leases.pool); delete the pod"},
	} {
		one := c.allocate(name, "", x.device)
		held, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		c.do(err)
		held.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p"}}
		held.Status.Allocation.Devices.Results[0].Tolerations = x.tolerate
		_, err = c.client.ResourceV1().ResourceClaims("default").Update(t.Context(), held, metav1.UpdateOptions{})
		c.do(err)
		said := c.prepare(endpoint, one).Claims[one.Uid].Error
		if !strings.Contains(said, x.wants) || x.wants == "" && said != "" {
			t.Errorf("it tolerates %s: %s", name, said)
		}
		if x.wants == "" {
			c.unprepare(endpoint, one)
		}
	}
}

// named is the name of the device of one LPU, published or not.
func named(a pci.Address) string {
	specs := dra.Slices(&discovery.Inventory{LPUs: []discovery.LPU{{Address: a}}}, dra.Options{Node: nodeName, Singles: true})
	return specs[0].Devices[0].Name
}

// TestCDIOff: a runtime that starts containers without their LPUs is said, and with the policy fail
// nothing is given out but what was before.
func TestCDIOff(t *testing.T) {
	why := finding.New(finding.CDIOff, "", "containerd has CDI off", "turn it on")
	off, on := &node.Runtime{CDI: node.CDIOff, Reason: &why}, &node.Runtime{CDI: node.CDIOn}
	for _, policy := range []node.OnCDIOff{node.FailOnCDIOff, node.WarnOnCDIOff} {
		c := newCluster(t)
		c.onCDIOff = policy
		c.runtime.Store(on)
		r := c.start("")
		device := c.published(r)
		endpoint := c.register()[0]
		await.Until(c, "ready", func() error { _, err := r.Ready(); return err })
		before := c.allocate("before", "", device(2, 0))
		if said := c.prepare(endpoint, before).Claims[before.Uid].Error; said != "" {
			t.Fatal(said)
		}
		says := func(ready, metric string, held bool) {
			t.Helper()
			await.Until(c, string(policy)+": "+metric, func() error {
				var metrics strings.Builder
				c.do(node.WriteMetrics(&metrics, r.Metrics()...))
				phase, err := r.Ready()
				tainted := len(c.devices()[device(4, 0)].Taints) > 0
				if err != nil || !strings.Contains(phase, ready) || tainted != held ||
					!strings.Contains(metrics.String(), `lpuctl_runtime_cdi{answer="`+metric+`"} 1`) {
					return fmt.Errorf("ready is %q, %w; tainted: %t; metrics: %s", phase, err, tainted, &metrics)
				}
				return nil
			})
		}
		fails := policy == node.FailOnCDIOff
		says("ok", "on", false)
		c.runtime.Store(off)
		says("the container runtime has CDI off; ", "off", fails)
		pair := c.allocate("pair", "", device(2, 4))
		if said := c.prepare(endpoint, pair).Claims[pair.Uid].Error; strings.Contains(said, "containerd has CDI off; turn it on") != fails {
			t.Errorf("%s: %s", policy, said)
		}
		if said := c.prepare(endpoint, before).Claims[before.Uid].Error; said != "" {
			t.Errorf("%s, of a claim that was prepared: %s", policy, said)
		}
		c.runtime.Store(on)
		says("ok", "on", false)
		if said := c.prepare(endpoint, pair).Claims[pair.Uid].Error; said != "" {
			t.Errorf("%s: %s", policy, said)
		}
		r.stop()
	}
}

// TestLeasedLeavesTheSlices: an LPU that a user has leased is in no device, and is not prepared for
// who was allocated it before.
func TestLeasedLeavesTheSlices(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	one := c.allocate("one", "", device(1, 0))
	lpu := r.Node.Latest().Inventory.LPUs[0].Address
	c.leased.Store(&map[pci.Address]string{lpu: "lease l3 of alice(1000)"})
	r.Gate.Renew(t.Context())
	await.Until(c, "it has left", func() error {
		for name, d := range c.devices() {
			if slices.Contains(dra.MembersOf(d), lpu) {
				return errors.New(name)
			}
		}
		return nil
	})
	if n := len(c.devices()); n != 17 {
		t.Errorf("%d devices", n)
	}
	if said := c.prepare(endpoint, one).Claims[one.Uid].Error; !strings.Contains(said, "lease l3 of alice(1000) has it") {
		t.Error(said)
	}
	c.leased.Store(nil)
	r.Gate.Renew(t.Context())
	await.Until(c, "it is back", func() error {
		if n := len(c.devices()); n != 25 {
			return fmt.Errorf("%d devices", n)
		}
		return nil
	})
	if said := c.prepare(endpoint, one).Claims[one.Uid].Error; said != "" {
		t.Error(said)
	}
}

// TestOwner holds that the driver gives nothing that the device plugin's pods have, or while that one is the owner.
func TestOwner(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	c.held.Store(r.Node.Latest().Inventory.LPUs[1].Address, "pod default/old")
	pair := c.allocate("pair", "", device(2, 0))
	if said := c.prepare(endpoint, pair).Claims[pair.Uid].Error; !strings.Contains(said, "pod default/old") {
		t.Error("an LPU that a pod has:", said)
	}
	late := c.allocate("late", "", device(2, 4))
	lpu := r.Node.Latest().Inventory.LPUs[4].Address
	c.asked.Store(func() { c.held.Store(lpu, "pod default/quick") }) // by a plugin that knows no owner, after the first answer
	if said := c.prepare(endpoint, late).Claims[late.Uid].Error; !strings.Contains(said, "pod default/quick") {
		t.Error("an LPU that a pod got meanwhile:", said)
	}
	c.asked.Store(func() {})
	c.held.Delete(lpu)
	if left := c.files(late.Uid); len(left) > 0 {
		t.Error("left of a claim that was refused:", left)
	}
	c.own(owner.Plugin)
	other := c.allocate("other", "", device(2, 4))
	if said := c.prepare(endpoint, other).Claims[other.Uid].Error; !strings.Contains(said, "lpuctl serve") {
		t.Error("while the plugin is the owner:", said)
	}
	c.own(owner.DRA)
	if said := c.prepare(endpoint, other).Claims[other.Uid].Error; said != "" {
		t.Error(said)
	}
}

// TestFilesComeBack holds that a container can start again after the spec directory was wiped, with the driver running and with a new one.
func TestFilesComeBack(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	four := c.allocate("four", "", device(4, 0))
	c.prepare(endpoint, four)
	want := c.files(four.Uid)
	if len(want) != 2 {
		t.Fatal(want)
	}
	wipe := func() {
		for _, name := range want {
			c.do(os.Remove(filepath.Join(c.specDir(), name)))
		}
	}
	back := func() error {
		if have := c.files(four.Uid); !slices.Equal(have, want) {
			return fmt.Errorf("%v", have)
		}
		return nil
	}
	wipe()
	await.Until(c, "with the driver running", back)
	r.stop()
	wipe()
	c.start("")
	c.register()
	if err := back(); err != nil {
		t.Error("after it has registered:", err)
	}
	c.unprepare(endpoint, four)
	time.Sleep(2500 * time.Millisecond)
	if left := c.files(four.Uid); len(left) > 0 {
		t.Error("left:", left)
	}
}

func TestHealth(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	client := drahealth.NewDRAResourceHealthClient(c.dial(endpoint))
	stream, err := client.NodeWatchResources(t.Context(), &drahealth.NodeWatchResourcesRequest{})
	c.do(err)
	told := func() map[string]*drahealth.DeviceHealth {
		report, err := stream.Recv()
		c.do(err)
		all := map[string]*drahealth.DeviceHealth{}
		for _, d := range report.Devices {
			all[d.Device.DeviceName] = d
		}
		return all
	}
	for name, h := range told() {
		if h.Health != drahealth.HealthStatus_HEALTHY {
			t.Errorf("%s: %s %s", name, h.Health, h.Message)
		}
	}
	began := time.Now()
	c.do(c.machine.Unbind(2))
	for {
		now := told()
		if h := now[device(4, 0)]; h.Health == drahealth.HealthStatus_UNHEALTHY {
			if !strings.Contains(h.Message, "lpu2 (0000:45:00.1)") || now[device(2, 0)].Health != drahealth.HealthStatus_HEALTHY {
				t.Error(h.Message)
			}
			break
		}
	}
	t.Logf("told after %v", time.Since(began))
}

// TestCollect holds that a claim which the API server does not have is given back, but not before its pod has gone.
func TestCollect(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	device := c.published(r)
	endpoint := c.register()[0]
	four, used := c.allocate("four", "", device(4, 0)), c.allocate("used", "", device(2, 4))
	kept := c.allocate("kept", "", device(1, 7))
	c.prepare(endpoint, four, used, kept)
	r.stop()
	c.pods.Store([]cdi.Claim{{Namespace: "default", Name: "used", UID: used.Uid}})
	claims := c.client.ResourceV1().ResourceClaims("default")
	c.do(claims.Delete(t.Context(), "used", metav1.DeleteOptions{}))
	c.do(claims.Delete(t.Context(), "four", metav1.DeleteOptions{}))
	c.allocate("four", "", device(4, 0)) // another one of its name
	c.start("")
	await.Until(c, "collected", func() error {
		if left := c.files(four.Uid); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	if len(c.files(used.Uid)) != 2 || len(c.files(kept.Uid)) != 2 {
		t.Error("a claim that is used was given back")
	}
}

func TestTwoInstances(t *testing.T) {
	c := newCluster(t)
	old := c.start("10000000-0000-4000-8000-000000000001")
	device := c.published(old)
	before := c.register()[0]
	four := c.allocate("four", "", device(4, 0))
	c.prepare(before, four)
	other := c.start("10000000-0000-4000-8000-000000000002")
	var after string
	await.Until(c, "both answer", func() error {
		all := c.register()
		if len(all) != 2 {
			return fmt.Errorf("%v", all)
		}
		after = all[1]
		return nil
	})
	overlaps := c.allocate("overlaps", "", device(2, 1))
	if said := c.prepare(after, overlaps).Claims[overlaps.Uid].Error; !strings.Contains(said, "default/four") {
		t.Error("the new one gives what the old one has given:", said)
	}
	var text strings.Builder
	if c.do(node.WriteMetrics(&text, other.Metrics()...)); !strings.Contains(text.String(), `lpuctl_dra_prepares_total{result="refused"} 1`) {
		t.Error("that is not counted as refused")
	}
	old.stop()
	c.unprepare(after, four)
	if said := c.prepare(after, overlaps).Claims[overlaps.Uid].Error; said != "" {
		t.Error(said)
	}
	if all := c.register(); len(all) != 1 {
		t.Error("the old one has left its socket:", all)
	}
}

func TestSocketsComeBack(t *testing.T) {
	c := newCluster(t)
	c.start("")
	endpoint := c.register()[0]
	c.do(os.Remove(endpoint))
	await.Until(c, "made anew", func() error {
		conn, err := net.Dial("unix", endpoint)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// TestMetrics holds that docs/dra.md names the metrics of the driver, and no others.
func TestMetrics(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	c.published(r)
	var text strings.Builder
	await.Until(c, "all are there", func() error {
		text.Reset()
		c.do(node.WriteMetrics(&text, r.Metrics()...))
		if !strings.Contains(text.String(), "lpuctl_dra_counters 1\n") {
			return errors.New(text.String())
		}
		return nil
	})
	page, err := os.ReadFile("../../../docs/dra.md")
	c.do(err)
	documented := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^\\| `(lpuctl_dra_[a-z_]+)").FindAllStringSubmatch(string(page), -1) {
		documented[name[1]] = true
	}
	for _, name := range regexp.MustCompile("(?m)^# HELP (lpuctl_dra_[a-z_]+) ").FindAllStringSubmatch(text.String(), -1) {
		if !documented[name[1]] {
			t.Errorf("docs/dra.md does not have %s", name[1])
		}
		delete(documented, name[1])
	}
	for name := range documented {
		t.Errorf("docs/dra.md has %s, and the driver does not", name)
	}
	for _, name := range []string{
		`lpuctl_owner{owner="dra"} 1`, "lpuctl_lpu_healthy{", "lpuctl_build_info", `lpuctl_dra_placeable{size="8"`,
	} {
		if !strings.Contains(text.String(), name) {
			t.Errorf("there is no %s", name)
		}
	}
}

// TestUnreadMachine holds that slices stay as they are while the machine cannot be read, and that the driver says so and is ready after it.
func TestUnreadMachine(t *testing.T) {
	c := newCluster(t)
	r := c.start("")
	c.published(r)
	c.register()
	ready := func() error { _, err := r.Ready(); return err }
	await.Until(c, "ready", ready)
	before, list := c.devices(), filepath.Join(c.root, "sys/bus/pci/devices")
	c.do(os.Rename(list, list+".away"))
	await.Until(c, "said", func() error {
		if err := ready(); err == nil || !strings.Contains(err.Error(), "remedy: check --root, and that sysfs is mounted there") {
			return fmt.Errorf("it says %w", err)
		}
		return r.Alive()
	})
	if !equality.Semantic.DeepEqual(c.devices(), before) {
		t.Error("what is published has changed")
	}
	c.do(os.Rename(list+".away", list))
	await.Until(c, "ready again", ready)
}
