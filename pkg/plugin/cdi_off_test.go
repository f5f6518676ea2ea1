package plugin

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// selfCheck is a self-check of the runtime whose answer a test sets.
type selfCheck struct {
	answer atomic.Pointer[node.Runtime]
}

func (c *selfCheck) says(state node.CDIState) {
	a := node.Runtime{CDI: state}
	switch state {
	case node.CDIOff:
		f := finding.New(finding.CDIOff, "", "containerd has CDI off", "turn it on")
		a.Reason = &f
	case node.CDIUnknown:
		f := finding.New(finding.CDIUnknown, "", "nobody has checked", "check it")
		a.Reason = &f
	}
	c.answer.Store(&a)
}

// checkedRig is a server whose kubelet's runtime is checked, with a policy. No result is there yet.
func checkedRig(t *testing.T, policy node.OnCDIOff) (*rig, *selfCheck) {
	t.Helper()
	r := newRig(t, simulate.Node{Profile: "orion"}, func(o *Options) { o.OnCDIOff, o.PreStart = policy, true })
	check := &selfCheck{}
	check.says(node.CDIUnknown)
	r.plugin.Node.Runtime = func() node.Runtime { return *check.answer.Load() }
	return r, check
}

// told says whether a container was given names or nodes; both or neither is a failure.
func told(t *testing.T, a *api.ContainerAllocateResponse) Strategy {
	t.Helper()
	if (len(a.CdiDevices) > 0) == (len(a.Devices) > 0) {
		t.Fatalf("a container gets %d names and %d nodes", len(a.CdiDevices), len(a.Devices))
	}
	if len(a.CdiDevices) > 0 {
		return CDI
	}
	return DeviceSpecs
}

// TestFailOnCDIOff: while CDI is off the kubelet is told that no LPU can be used, and why is said; nothing is handed out, and no container
// is started again. What is on, or not known, keeps nobody from anything.
func TestFailOnCDIOff(t *testing.T) {
	bothRules(t, func(t *testing.T, rules rules) {
		r, check := checkedRig(t, node.FailOnCDIOff)
		k := newKubelet(t, rules)
		k.start()
		r.scan()
		i := r.serve(k, false)
		k.wait(8)
		_, held, err := k.admit(2)
		if err != nil {
			t.Fatal(err)
		}
		client := k.primary().client
		restart := func() error {
			_, err := client.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: held})
			return err
		}
		for _, state := range []node.CDIState{node.CDIOff, node.CDIOn, node.CDIOff, node.CDIUnknown, node.CDIOff, node.CDIOn} {
			check.says(state)
			r.scan()
			if state != node.CDIOff {
				k.wait(8)
				if err := restart(); err != nil {
					t.Errorf("%s: a container is not started again: %v", state, err)
				}
				continue
			}
			k.wait(0)
			if got := len(k.health()); got != 8 {
				t.Errorf("%d devices are listed", got)
			}
			if got := i.value("lpuctl_lpu_reason", "lpu", "lpu1", "device", orionIDs[1], "reason", "cdi-off", "severity", "error"); got != 1 {
				t.Errorf("the metrics do not say why: %v", got)
			}
			if got := i.value("lpuctl_lpu_healthy", "lpu", "lpu1", "device", orionIDs[1]); got != 0 {
				t.Errorf("the metrics say that the kubelet has it as healthy: %v", got)
			}
			const why = "lpu4 (pci-0000-83-00.1) is not handed out: containerd has CDI off"
			_, err := client.Allocate(t.Context(), request(ids(4)...))
			if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != why {
				t.Errorf("Allocate: %v", err)
			}
			if _, err := r.prefer(2, nil, orionIDs...); err == nil {
				t.Error("LPUs are preferred that are not handed out")
			}
			if err := restart(); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a container that would not find its LPUs is started again: %v", err)
			}
			if err := i.ready(); err != nil {
				t.Errorf("it is not ready: %v", err)
			}
		}
		if _, _, err := k.admit(4); err != nil {
			t.Error(err)
		}
	})
}

// TestCDIOffIsNotTheLPUs: their own health is remembered as it is, and what is wrong with one is said as before.
func TestCDIOffIsNotTheLPUs(t *testing.T) {
	r, check := checkedRig(t, node.FailOnCDIOff)
	r.plugin.Node.Memory.Dir = t.TempDir()
	inv := r.scan()
	check.says(node.CDIOff)
	for range 2 { // the second time nothing at all has changed
		r.plugin.Update(t.Context(), found(inv))
		for _, d := range r.devices() {
			if d.Health != api.Unhealthy {
				t.Errorf("%s is %s", d.ID, d.Health)
			}
		}
	}
	if seen, err := r.plugin.Node.Memory.Seen(); err != nil || len(seen) != 8 {
		t.Errorf("%d LPUs are remembered: %v", len(seen), err)
	}
	if strings.Contains(r.log.String(), `"health":"Unhealthy"`) {
		t.Errorf("the log calls LPUs unhealthy: %s", r.log)
	}
	check.says(node.CDIOn)
	r.plugin.Update(t.Context(), found(inv))
	for _, d := range r.devices() {
		if d.Health != api.Healthy {
			t.Errorf("%s is %s", d.ID, d.Health)
		}
	}
}

// TestWarnOnCDIOff: pods are served as ever. It is said once, and again when the answer is another one.
func TestWarnOnCDIOff(t *testing.T) {
	r, check := checkedRig(t, node.WarnOnCDIOff)
	k := newKubelet(t, rules137)
	k.start()
	r.scan()
	i := r.serve(k, false)
	k.wait(8)
	k.mu.Lock()
	lists := k.lists
	k.mu.Unlock()
	for _, state := range []node.CDIState{node.CDIUnknown, node.CDIOff, node.CDIOff, node.CDIOn, node.CDIOff, node.CDIUnknown} {
		check.says(state)
		r.scan()
		r.scan()
		a, err := r.allocate(ids(0, 1)...)
		if err != nil || told(t, a) != CDI {
			t.Errorf("%s: %v, %v", state, a, err)
		}
		for _, answer := range []node.CDIState{node.CDIOn, node.CDIOff, node.CDIUnknown} {
			want := map[bool]float64{true: 1}[answer == state]
			if got := i.value("lpuctl_runtime_cdi", "answer", string(answer)); got != want {
				t.Errorf("%s: %s is %v", state, answer, got)
			}
		}
	}
	for text, want := range map[string]int{
		"containers start without their LPUs": 2, "has CDI on\"": 1, "it is not known whether": 2,
		`"id":"cdi-off","reason":"containerd has CDI off","remedy":"turn it on"`: 2, `"remedy":"check it"`: 2,
	} {
		if got := strings.Count(r.log.String(), text); got != want {
			t.Errorf("%q is logged %d times, not %d:\n%s", text, got, want, r.log)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lists != lists {
		t.Errorf("the kubelet got %d lists, though nothing has changed", k.lists-lists)
	}
}

// TestSpecsOnCDIOff: each container gets either names or nodes, by the answer of the moment, and all containers of one call the same. The
// list does not change, so the answer may go to and fro.
func TestSpecsOnCDIOff(t *testing.T) {
	r, check := checkedRig(t, node.SpecsOnCDIOff)
	k := newKubelet(t, rules136)
	k.start()
	r.scan()
	r.serve(k, false)
	k.wait(8)
	k.mu.Lock()
	lists := k.lists
	k.mu.Unlock()
	always := newRig(t, simulate.Node{Profile: "orion"}, func(o *Options) { o.Strategy = DeviceSpecs })
	always.scan()
	both := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids(0, 1)}, {DevicesIds: ids(2)}}}
	for _, state := range []node.CDIState{
		node.CDIUnknown, node.CDIOff, node.CDIOn, node.CDIOff, node.CDIUnknown, node.CDIOff, node.CDIOff, node.CDIOn,
	} {
		check.says(state)
		r.scan()
		want := CDI
		if state == node.CDIOff {
			want = DeviceSpecs
		}
		a, err := k.primary().client.Allocate(t.Context(), both)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range a.ContainerResponses {
			if got := told(t, c); got != want {
				t.Errorf("%s: container %d gets %s", state, i, got)
			}
		}
		if want == DeviceSpecs { // all that a container gets where CDI is never used
			c, err := always.allocate(ids(0, 1)...)
			if err != nil {
				t.Fatal(err)
			}
			nodes := func(c *api.ContainerAllocateResponse) (paths []string) {
				for _, d := range c.Devices {
					paths = append(paths, d.HostPath)
				}
				return paths
			}
			got := a.ContainerResponses[0]
			if !slices.Equal(nodes(got), nodes(c)) || len(got.Mounts) != len(c.Mounts) || !maps.Equal(got.Envs, c.Envs) {
				t.Errorf("a container gets %v, not %v", got, c)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lists != lists {
		t.Errorf("the kubelet got %d lists, though nothing has changed", k.lists-lists)
	}
}

// TestCDIOffWhileTheMachineCannotBeRead: what containers get follows the answer all the same.
func TestCDIOffWhileTheMachineCannotBeRead(t *testing.T) {
	r, check := checkedRig(t, node.SpecsOnCDIOff)
	r.scan()
	check.says(node.CDIOff)
	broken := func(context.Context) (*discovery.Inventory, error) { return nil, io.ErrUnexpectedEOF }
	if r.plugin.Update(t.Context(), broken) {
		t.Fatal("updated though the machine could not be read")
	}
	if a, err := r.allocate(ids(0)...); err != nil || told(t, a) != DeviceSpecs {
		t.Errorf("%v, %v", a, err)
	}
	options := r.plugin.state.Load().options
	options.OnCDIOff = node.FailOnCDIOff
	r.plugin.Reload(t.Context(), options)
	if _, err := r.allocate(ids(0)...); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("with %s: %v", node.FailOnCDIOff, err)
	}
}

// TestNodesAloneNeedNoSelfCheck: with the strategy device-specs nobody asks, and there is no metric.
func TestNodesAloneNeedNoSelfCheck(t *testing.T) {
	r, check := checkedRig(t, node.FailOnCDIOff)
	check.says(node.CDIOff)
	r.scan()
	options := r.plugin.state.Load().options
	options.Strategy = DeviceSpecs
	r.plugin.Reload(t.Context(), options)
	if a, err := r.allocate(ids(0)...); err != nil || told(t, a) != DeviceSpecs {
		t.Errorf("%v, %v", a, err)
	}
	all, err := (&Server{Plugin: r.plugin}).families()
	if err != nil || all["lpuctl_runtime_cdi"] != nil {
		t.Errorf("%v, %v", all["lpuctl_runtime_cdi"], err)
	}
	options.Strategy, options.Spec.Options.Kind = CDI, cdi.DefaultKind
	r.plugin.Reload(t.Context(), options) // with the answer that holds now, at once
	if _, err := r.allocate(ids(0)...); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("after a change back: %v", err)
	}
	options.OnCDIOff = node.SpecsOnCDIOff
	r.plugin.Reload(t.Context(), options)
	if a, err := r.allocate(ids(0)...); err != nil || told(t, a) != DeviceSpecs {
		t.Errorf("%v, %v", a, err)
	}
}
