package kubelet

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestDRA runs the driver on one node of a cluster, with everything that may happen to it there. Its parts leave the node as they found
// it: the driver runs, and the ring is free. Only the last one leaves taints.
func TestDRA(t *testing.T) {
	b := newDRA(t)
	b.start()
	b.waitDevices("the arcs of the ring are published", checkSizes)
	b.waitReady(listen)
	b.part("pods", b.draPods)
	b.part("requests and containers", b.draRequests)
	b.part("ring tables", b.draRing)
	b.part("documented claims", b.draDocumented)
	b.part("at rest", b.draAtRest)
	b.part("bad claims", b.draBadClaims)
	b.part("a stranger's slices", b.draStrangers)
	b.part("driver killed and files wiped", b.draKilled)
	b.part("claim deleted by force", b.draForced)
	b.part("kubelet restarted", b.draKubelet)
	b.part("two instances", b.draInstances)
	b.part("API server away", b.draAPIServer)
	b.part("node made anew", b.draNodeAnew)
	b.part("secure accelerator access", b.secureByClaim)
	b.part("plugin and driver", b.draOwner)
	b.part("lost LPU", b.draLost)
}

// draPods: a claim, a template and an extended resource each bring a container connected LPUs, and no two of them the same. What waits for
// four LPUs gets them when a pod that had four has gone.
func (b *draBed) draPods() {
	b.submit(claim("claim", claimSpec("lpu-4")), claimPod("claim", "resourceClaimName", "claim"))
	four := b.check(b.t, b.inspect("claim"), 4, true)
	b.submit(
		claimTemplate("two", claimSpec("lpu-2")), claimPod("template", "resourceClaimTemplateName", "two"),
		podManifest("extended", 1),
	)
	two := b.check(b.t, b.inspect("template"), 2, true)
	one := b.check(b.t, b.inspect("extended"), 1, true)
	used := slices.Concat(four, two, one)
	if slices.Sort(used); len(slices.Compact(used)) != 7 {
		b.t.Errorf("LPUs are given twice: %v, %v and %v", four, two, one)
	}

	b.submitClaimed("waiting", 4)
	b.waitUnscheduled("waiting")
	b.waitPodHealth("claim", "Healthy", "")
	deleted := time.Now()
	b.release("claim")
	if got := b.check(b.t, b.inspect("waiting"), 4, true); !slices.Equal(got, four) {
		b.t.Errorf("it got LPUs %v when %v were free", got, four)
	}
	b.t.Logf("the waiting pod runs %v after the other one is deleted", b.firstWords("waiting").Sub(deleted).Round(10*time.Millisecond))

	// Four LPUs as a device plugin gives them are changed into one device of four.
	b.submit(podManifest("mutated", 4))
	b.waitUnscheduled("mutated")
	b.release("waiting")
	if got := b.check(b.t, b.inspect("mutated"), 4, true); !slices.Equal(got, four) {
		b.t.Errorf("it got LPUs %v when %v were free", got, four)
	}
}

// draAtRest: a driver that has nothing to do takes little, soon after its start.
func (b *draBed) draAtRest() {
	await.Until(b.t, "the driver takes less than 50 MiB", func() error {
		rss := machine.Status(b.t, b.driver.PID(), "VmRSS")
		if rss > 50<<10 {
			return fmt.Errorf("%d KiB are resident", rss)
		}
		b.t.Logf("%d KiB resident", rss)
		return nil
	})
	if !long() {
		return
	}
	const settled, looked = 20 * time.Second, 2 * time.Minute
	time.Sleep(settled) // the pods before have only just gone
	before := b.cpu()
	time.Sleep(looked)
	part := 100 * float64(b.cpu()-before) / float64(looked)
	if b.t.Logf("%.2f %% of a core", part); part > 0.2 {
		b.t.Error("that is more than 0.2 %")
	}
}

// long tells whether these are the long tests, which take their time and have the machine for themselves.
func long() bool { return os.Getenv("LPUCTL_LONG") != "" }

// cpu is the time that the driver's threads have run.
func (b *draBed) cpu() (all time.Duration) {
	b.t.Helper()
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", b.driver.PID())) // fails on a bad pattern only
	for _, file := range threads {
		data, err := os.ReadFile(file)
		b.do(err)
		var ran time.Duration // in nanoseconds, as the kernel has it (Documentation/scheduler/sched-stats.rst)
		_, err = fmt.Sscan(string(data), &ran)
		b.do(err)
		all += ran
	}
	return all
}

// draRequests: of a claim with several requests each container sees those that it names.
func (b *draBed) draRequests() {
	spec := values{"devices": values{"requests": []any{request("pair", "lpu-2"), request("single", "lpu")}}}
	pod := claimPod("requests", "resourceClaimName", "requests")
	containers := pod["spec"].(values)["containers"].([]any)
	first := containers[0].(values)
	second := values{"name": "second"}
	for _, key := range []string{"image", "imagePullPolicy", "command"} {
		second[key] = first[key]
	}
	asks := func(request string) values {
		return values{"claims": []any{values{"name": "lpus", "request": request}}}
	}
	first["resources"], second["resources"] = asks("pair"), asks("single")
	pod["spec"].(values)["containers"] = append(containers, second)
	b.submit(claim("requests", spec), pod)
	pair, single := b.inspectContainer("requests", "main", 0), b.inspectContainer("requests", "second", 0)
	for _, c := range []struct {
		container
		name string
		n    int
	}{{pair, "PAIR", 2}, {single, "SINGLE", 1}} {
		if len(c.nodes) != c.n || len(c.opens) != c.n || strings.Count(c.env["LPU_VISIBLE_DEVICES_"+c.name], ",") != c.n-1 {
			b.t.Errorf("request %s of %d: %+v", c.name, c.n, c.container)
		}
		if value, ok := c.env["LPU_VISIBLE_DEVICES"]; ok {
			b.t.Errorf("request %s sets the variable of the whole claim, to %s", c.name, value)
		}
	}
	if slices.Contains(pair.nodes, single.nodes[0]) {
		b.t.Errorf("an LPU is given twice: %v, %v", pair.nodes, single.nodes)
	}
}

// draDocumented: each template of the file of samples brings a container as many LPUs as it says.
func (b *draBed) draDocumented() {
	data, err := os.ReadFile("../../../examples/kubernetes/dra-pods.yaml")
	b.do(err)
	want := map[string]int{
		"four-lpus": 4, "four-or-two-lpus": 4, "four-lpus-one-socket": 4, "two-lpus-one-pcie-switch": 2, "lpus-of-64-gib": 4,
	}
	var templates []string
	for _, o := range objects(b.t, string(data)) {
		metadata := o["metadata"].(values)
		metadata["namespace"] = "default"
		if o["kind"] == "Pod" { // its image is elsewhere
			_, err := kubectl(toJSON(b.t, o), "create", "--dry-run=server", "-f", "-")
			b.do(err)
			continue
		}
		b.submit(o)
		templates = append(templates, metadata["name"].(string))
	}
	if len(templates) != len(want) {
		b.t.Errorf("there are the templates %v", templates)
	}
	for _, name := range templates {
		b.submit(claimPod(name, "resourceClaimTemplateName", name))
		b.check(b.t, b.inspect(name), want[name], true)
		b.release(name)
	}
}

// configured is the spec of a claim for one LPU with parameters for the driver.
func configured(parameters values) values {
	spec := claimSpec("lpu")
	spec["devices"].(values)["config"] = []any{values{"opaque": values{"driver": driverName, "parameters": parameters}}}
	return spec
}

// draBadClaims: a claim with parameters that the driver does not know is refused, and says so; one with those that it knows is not.
func (b *draBed) draBadClaims() {
	const version = statefile.APIVersion
	parameters := map[string]values{
		"none":  {"apiVersion": version, "kind": "LpuConfig", "variables": "none"},
		"kind":  {"apiVersion": version, "kind": "GpuConfig", "variables": "none"},
		"field": {"apiVersion": version, "kind": "LpuConfig", "variable": "none"},
		"value": {"apiVersion": version, "kind": "LpuConfig", "variables": "some"},
	}
	for name, p := range parameters {
		b.submit(claim(name, configured(p)), claimPod(name, "resourceClaimName", name))
	}
	c := b.inspect("none")
	if _, ok := c.env["LPU_VISIBLE_DEVICES"]; ok || len(c.opens) != 1 {
		b.t.Errorf("without the common variables: %+v", c)
	}
	b.waitEvent("kind", "GpuConfig")
	b.waitEvent("field", `"variable"`)
	b.waitEvent("value", "some")
	b.waitClaimFiles(1)
}

// draStrangers: where no policy forbids it somebody publishes devices under our driver's name. A claim that is given one of them is
// refused, also when the device is called as one of ours, and nothing is left of it.
func (b *draBed) draStrangers() {
	devices, err := b.devices()
	b.do(err)
	stranger := values{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": values{"name": "strange"},
		"spec": values{
			"driver": driverName, "pool": values{"name": "strange", "generation": 1, "resourceSliceCount": 1}, "allNodes": true,
			"devices": []any{values{"name": devices[0].Name, "attributes": values{
				"size": values{"int": devices[0].size()}, "model": values{"string": "strange"}, // as our own have
			}}},
		},
	}
	b.withPolicies("lpu-slices.hyperaccel.ai", false)
	defer b.withPolicies("lpu-slices.hyperaccel.ai", true)
	await.Until(b.t, "the slice is created", func() error { // the API server takes a moment to forget a policy
		return ask(http.MethodPost, path("ResourceSlice"), stranger, nil)
	})
	spec := claimSpec(class(devices[0].size()))
	exactly := spec["devices"].(values)["requests"].([]any)[0].(values)["exactly"].(values)
	exactly["selectors"] = []any{values{"cel": values{"expression": `device.attributes["` + driverName + `"].model == "strange"`}}}
	b.submit(claim("strange", spec), claimPod("strange", "resourceClaimName", "strange"))
	b.waitEvent("strange", devices[0].Name)
	b.release("strange")
	b.do(ask(http.MethodDelete, path("ResourceSlice")+"/strange", nil, nil))
}

// waitPodHealth waits until the state of a pod tells the health of what it claims, and why, and returns how long that took.
func (b *bed) waitPodHealth(name, health, why string) time.Duration {
	b.t.Helper()
	began := time.Now()
	await.Until(b.t, name+" is "+health, func() error {
		p, err := b.podOfName(name)
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					if d.Health == health && strings.Contains(d.Message, why) {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("%+v", p.Status)
	})
	return time.Since(began)
}

// draLost: a lost LPU shows in the state of the pod that has it, by name, and is not given any more. The rest of the ring is. The pod runs
// on, but where the driver was told to evict such pods.
func (b *draBed) draLost() {
	lpus := b.claimed("lost", 2)
	b.waitPodHealth("lost", "Healthy", "")
	b.do(b.node.Unplug(lpus[0]))
	took := b.waitPodHealth("lost", "Unhealthy", b.node.Card(lpus[0]).Address.String())
	b.t.Logf("from the loss to the state of the pod: %v", took.Round(10*time.Millisecond))
	b.waitPublished(lpus[0])
	if p, err := b.podOfName("lost"); err != nil || p.Status.Phase != "Running" || p.Metadata.DeletionTimestamp != "" {
		b.t.Errorf("the pod does not run on: %+v %v", p, err)
	}
	b.driver.Stop(unix.SIGTERM)
	b.startAs("first", listen, "--no-execute")
	await.Until(b.t, "the pod is evicted", func() error {
		if p, err := b.podOfName("lost"); err == nil {
			return fmt.Errorf("it is %+v", p)
		}
		return nil
	})
	for _, lpu := range b.claimed("others", 4) {
		if lpu == lpus[0] {
			b.t.Errorf("LPU %d is lost, and given", lpu)
		}
	}
	b.do(b.node.Replug(lpus[0]))
}

// probe is what a container does that tries to reach LPUs that are not its own: by nodes that it makes for their numbers.
func (b *bed) probe() string {
	script := strings.Builder{}
	for i := range b.node.LPUs() {
		if n := b.node.Card(i).Numbers; guarded(n.Major, n.Minor) {
			fmt.Fprintf(&script, "mknod /n%d c %d %d; (exec 3<>/n%[1]d) 2>/dev/null && echo reaches %[2]d:%[3]d\n", i, n.Major, n.Minor)
		}
	}
	return script.String() + inspect
}

// guarded tells whether a container may not open a device of these numbers that it was not given. Every container has some of memory, and
// in some releases of runc the tunnel.
func guarded(major, minor uint32) bool { return major != 1 && (major != 10 || minor != 200) }

// secureAccess is what the test for secure access to accelerators of Kubernetes' AI conformance suite asks for: of containers on a node
// with LPUs, also of one pod, each reaches what it was given, and no other, even if it makes nodes for the others. request makes a pod's
// first container ask for an LPU.
func (b *bed) secureAccess(request func(name string, spec values)) {
	b.t.Helper()
	probing := func(name string, containers ...string) values {
		pod := podManifest(name, 0)
		spec := pod["spec"].(values)
		list := []any{}
		for _, c := range containers {
			list = append(list, values{
				"name": c, "image": machine.Image, "imagePullPolicy": "Never", "command": []string{"sh", "-c", b.probe()},
			})
		}
		spec["containers"] = list
		return pod
	}
	one, other, none, both := probing("one", "main"), probing("other", "main"), probing("none", "main"), probing("both", "main", "second")
	for _, pod := range []values{one, other, both} {
		request(pod["metadata"].(values)["name"].(string), pod["spec"].(values))
	}
	none["spec"].(values)["nodeName"] = nodeName
	b.submit(one, other, none, both)
	used := map[int]bool{}
	for _, name := range []string{"one", "other", "both"} {
		c := b.inspect(name)
		lpu := b.check(b.t, c, 1, true)[0]
		if used[lpu] {
			b.t.Errorf("LPU %d is given twice", lpu)
		}
		used[lpu] = true
		var want []string
		if n := b.node.Card(lpu).Numbers; guarded(n.Major, n.Minor) {
			want = []string{n.String()}
		}
		if !slices.Equal(c.reaches, want) {
			b.t.Errorf("%s, which has LPU %d, reaches %v, want %v", name, lpu, c.reaches, want)
		}
	}
	for _, c := range []container{b.inspect("none"), b.inspectContainer("both", "second", 0)} {
		if len(c.env)+len(c.nodes)+len(c.reaches) > 0 {
			b.t.Errorf("a container that asks for no LPU has %+v", c)
		}
	}
	if guardedOnes := strings.Count(b.probe(), "mknod"); guardedOnes < 2 {
		b.t.Errorf("only %d of the LPUs have numbers that a container may not open", guardedOnes)
	}
}

// secureByClaim is that access by claims.
func (b *draBed) secureByClaim() {
	b.submit(claimTemplate("single", claimSpec("lpu")))
	b.secureAccess(func(_ string, spec values) {
		spec["resourceClaims"] = []any{values{"name": "lpus", "resourceClaimTemplateName": "single"}}
		mainContainer(spec)["resources"] = values{"claims": []any{values{"name": "lpus"}}}
	})
}

// secureByPlugin is that access by the device plugin.
func (b *draBed) secureByPlugin() {
	b.secureAccess(func(_ string, spec values) {
		mainContainer(spec)["resources"] = values{"limits": values{resource: "1"}}
	})
}

// startTimes starts pods of one LPU one after the other, and returns the times from a pod's creation to its first words, the shortest
// first.
func (b *bed) startTimes(pod func(name string) values) (took []time.Duration) {
	b.t.Helper()
	for i := range 7 {
		name := fmt.Sprintf("timed%d", i)
		manifest := pod(name)
		began := time.Now()
		b.submit(manifest)
		b.check(b.t, b.inspect(name), 1, true)
		took = append(took, b.firstWords(name).Sub(began))
	}
	slices.Sort(took)
	return took
}

// firstWords is when the container of a pod said something first.
func (b *bed) firstWords(pod string) time.Time {
	b.t.Helper()
	logs, _ := filepath.Glob("/var/log/pods/default_" + pod + "_*/main/0.log") // fails on a bad pattern only
	if len(logs) != 1 {
		b.t.Fatalf("%s has the logs %v", pod, logs)
	}
	data, err := os.ReadFile(logs[0])
	b.do(err)
	text, _, _ := strings.Cut(string(data), " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	b.do(err)
	return at
}
