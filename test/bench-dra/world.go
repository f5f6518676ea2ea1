package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/plan"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// mode is how pods ask for LPUs.
type mode string

const (
	plugin mode = "plugin"
	single mode = "single"
	arcs   mode = "arcs"
)

const (
	namespace    = "default"
	extended     = corev1.ResourceName("hyperaccel.ai/lpu")
	request      = "lpus" // of a claim, and the name of the claim in its pod
	writers      = 16     // how many create objects at a time
	lpusOfServer = 8
	cpusOfLPU    = 8 // of 128
)

// world is a cluster with nodes.
type world struct {
	*cluster
	server *discovery.Inventory // of each node
	mode   mode
	nodes  int
	made   int // pods and claims that were made, for their names
}

// newServer is a simulated Orion.
func newServer(ctx context.Context) (*discovery.Inventory, error) {
	root, err := os.MkdirTemp("", "bench-dra-orion-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root) //nolint:errcheck // a temporary directory
	if _, err := (simulate.Node{Profile: "orion", LPUs: lpusOfServer}).Write(root); err != nil {
		return nil, err
	}
	return discovery.Scan(ctx, root, discovery.Options{})
}

func nodeName(i int) string { return fmt.Sprintf("orion-%04d", i) }

// specs are the slices of a node.
func (w *world) specs(node int) []resourceapi.ResourceSliceSpec {
	return dra.Slices(w.server, dra.Options{Node: nodeName(node), Singles: w.mode == single})
}

// devices are the devices of a node, as they are published.
func (w *world) devices(node int) (all []resourceapi.Device) {
	for _, s := range w.specs(node) {
		all = append(all, s.Devices...)
	}
	return all
}

// sliceBytes is how long the slices of a node are as JSON.
func (w *world) sliceBytes() int {
	if w.mode == plugin {
		return 0
	}
	data, _ := json.Marshal(w.specs(0))
	return len(data)
}

// furnish makes the nodes, their slices and the classes.
func (w *world) furnish(ctx context.Context) error {
	err := parallel(w.nodes, func(i int) error {
		list := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods: resource.MustParse("250"),
		}
		if w.mode == plugin {
			list[extended] = *resource.NewQuantity(lpusOfServer, resource.DecimalSI)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i)}}}
		node.Status = corev1.NodeStatus{
			Capacity: list, Allocatable: list,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}
		if _, err := w.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil || w.mode == plugin {
			return err
		}
		for k, spec := range w.specs(i) {
			slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", nodeName(i), k)}, Spec: spec}
			kept, err := w.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if len(kept.Spec.SharedCounters) != len(spec.SharedCounters) {
				return errors.New("the API server drops the counters of the slices")
			}
		}
		return nil
	})
	if err != nil || w.mode == plugin {
		return errors.Join(err, w.rest(ctx))
	}
	for _, class := range plan.Classes() {
		class.Spec.ExtendedResourceName = nil
		if _, err := w.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return w.rest(ctx)
}

func className(size int) string {
	if size == 1 {
		return "lpu"
	}
	return fmt.Sprint("lpu-", size)
}

// name is one that nothing has yet.
func (w *world) name() string {
	w.made++
	return podName(w.made)
}

func podName(i int) string { return fmt.Sprintf("pod-%06d", i) }

// claim is one for a number of LPUs, as the mode asks for them.
func (w *world) claim(name string, size int) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{AllocationMode: resourceapi.DeviceAllocationModeExactCount}
	exactly.DeviceClassName, exactly.Count = className(size), 1
	if w.mode == single {
		exactly.DeviceClassName, exactly.Count = className(1), int64(size)
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: request, Exactly: exactly}}
	return c
}

// pod is one that has the claim of its name, or in mode plugin asks for LPUs itself.
func (w *world) pod(name string, size int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	// CPU time in proportion to the LPUs, so that the scheduler spreads pods over the nodes, as it does by default.
	asked := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpusOfLPU*size), resource.DecimalSI)}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: asked, Requests: asked}}}
	if w.mode == plugin {
		asked[extended] = *resource.NewQuantity(int64(size), resource.DecimalSI)
		return p
	}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: request}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: request, ResourceClaimName: &name}}
	return p
}

// taken are LPUs of a node that somebody has.
type taken struct {
	node int
	lpus []pci.Address // connected, if there is an arc of them
}

// take gives LPUs away without the scheduler, to pods that are bound and whose claims are allocated.
func (w *world) take(ctx context.Context, all []taken) error {
	names := make([]string, len(all))
	for i := range all {
		names[i] = w.name()
	}
	return errors.Join(parallel(len(all), func(i int) error {
		t := all[i]
		pod := w.pod(names[i], len(t.lpus))
		pod.Spec.NodeName = nodeName(t.node)
		if _, err := w.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil || w.mode == plugin {
			return err
		}
		c, err := w.ResourceV1().ResourceClaims(namespace).Create(ctx, w.claim(names[i], len(t.lpus)), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		c.Status.Allocation = &resourceapi.AllocationResult{}
		for _, device := range w.covering(t) {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Request: request, Driver: dra.DriverName, Pool: nodeName(t.node), Device: device,
			})
		}
		_, err = w.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
		return err
	}), w.rest(ctx))
}

// covering are the names of the devices that have just these LPUs: one arc, or else one device for each LPU.
func (w *world) covering(t taken) (names []string) {
	want := map[pci.Address]bool{}
	for _, a := range t.lpus {
		want[a] = true
	}
	devices := w.devices(t.node)
	for i := range devices {
		members := dra.MembersOf(&devices[i])
		inside := 0
		for _, m := range members {
			if want[m] {
				inside++
			}
		}
		switch {
		case inside < len(members):
		case inside == len(t.lpus):
			return []string{devices[i].Name}
		case inside == 1:
			names = append(names, devices[i].Name)
		}
	}
	return names
}

// check finds LPUs that two claims have.
func (w *world) check(ctx context.Context) error {
	if w.mode == plugin {
		return nil
	}
	claims, err := w.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	members := map[string][]pci.Address{}
	for i := range w.nodes {
		devices := w.devices(i)
		for k := range devices {
			members[nodeName(i)+"/"+devices[k].Name] = dra.MembersOf(&devices[k])
		}
	}
	return twice(claims.Items, members)
}

// twice says which LPU two claims have, if there is one. Members are those of a device, by pool/device.
func twice(claims []resourceapi.ResourceClaim, members map[string][]pci.Address) error {
	holder := map[string]string{}
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			for _, a := range members[r.Pool+"/"+r.Device] {
				lpu := r.Pool + " " + a.String()
				if other := holder[lpu]; other != "" {
					return fmt.Errorf("claims %s and %s both have LPU %s", other, c.Name, lpu)
				}
				holder[lpu] = c.Name
			}
		}
	}
	return nil
}

// clear deletes the pods and claims that were made after the first so many.
func (w *world) clear(ctx context.Context, first int) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	pods, err := w.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := parallel(len(pods.Items), func(i int) error {
		if pods.Items[i].Name <= podName(first) {
			return nil
		}
		return w.CoreV1().Pods(namespace).Delete(ctx, pods.Items[i].Name, now)
	}); err != nil {
		return err
	}
	claims, err := w.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// No controller removes the scheduler's finalizer.
	free := []byte(`{"metadata":{"finalizers":null}}`)
	return errors.Join(parallel(len(claims.Items), func(i int) error {
		name := claims.Items[i].Name
		if name <= podName(first) {
			return nil
		}
		if _, err := w.ResourceV1().ResourceClaims(namespace).Patch(ctx, name, types.MergePatchType, free, metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := w.ResourceV1().ResourceClaims(namespace).Delete(ctx, name, now); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}), w.rest(ctx))
}

// parallel does something n times, by several writers.
func parallel(n int, do func(i int) error) error {
	errs := make([]error, writers)
	var wait sync.WaitGroup
	for k := range writers {
		wait.Go(func() {
			for i := k; i < n && errs[k] == nil; i += writers {
				errs[k] = do(i)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
