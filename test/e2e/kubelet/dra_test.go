package kubelet

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const (
	driverName    = "lpu.hyperaccel.ai"
	driverAccount = "lpuctl-dra"
	driverConfig  = "/run/driver.kubeconfig"
	listen        = "127.0.0.1:9477" // where the driver tells its metrics
	resources     = "/apis/resource.k8s.io/v1"
	claimFiles    = "/run/cdi/hyperaccel.ai-lpu-claim-*.json"
)

// draBed is a node of a cluster that has what the chart installs in mode dra, but for its DaemonSet: the tests start the driver, with the
// rights of the DaemonSet's service account.
type draBed struct {
	*bed
	whole     *testing.T // the test, of which b.t may be a part
	apiServer *machine.Daemon
	driver    *machine.Daemon // the one that was started last
}

// newDRA starts such a cluster, with flags of its API server and scheduler. No driver runs yet.
func newDRA(t *testing.T, flags ...string) *draBed {
	t.Helper()
	need(t, kubernetes("kube-controller-manager"), os.Getenv("DRA"), os.Getenv("HELM"), "ip")
	b, apiServer := newClusterOf(t, plane{
		server: flags, scheduler: flags,
		controllers: "resourceclaim-controller,garbage-collector-controller,device-taint-eviction-controller," +
			"daemonset-controller,serviceaccount-controller,root-ca-certificate-publisher-controller",
	})
	d := &draBed{bed: b, whole: t, apiServer: apiServer}
	d.own("dra")
	d.installRights()
	return d
}

// modeDRA are the chart's values of a cluster whose pods may ask for LPUs in every way.
func modeDRA() values {
	return values{"mode": "dra", "createNamespace": true, "extendedResources": true}
}

// installRights applies the chart without its DaemonSet, and gets a token for the driver as the pod of the DaemonSet has one: of its
// service account, and bound to a pod on this node.
func (b *draBed) installRights() {
	b.t.Helper()
	items := slices.DeleteFunc(render(b.t, modeDRA()), func(o values) bool { return o["kind"] == "DaemonSet" })
	b.apply(items...)
	anchor := podManifest("anchor", 0)
	anchor["metadata"] = values{"name": "anchor", "namespace": namespace}
	spec := anchor["spec"].(values)
	spec["serviceAccountName"], spec["nodeName"] = driverAccount, nodeName
	b.apply(anchor)
	token, err := kubectl("", "create", "token", driverAccount, "--namespace", namespace,
		"--bound-object-kind", "Pod", "--bound-object-name", "anchor")
	b.do(err)
	writeKubeconfig(b.t, driverConfig, strings.TrimSpace(token))
}

// listOf is a manifest of objects.
func listOf(t *testing.T, items []values) string {
	t.Helper()
	return toJSON(t, values{"apiVersion": "v1", "kind": "List", "items": items})
}

// apply waits for what the controllers make of a new namespace, without which the API server refuses pods.
func (b *bed) apply(items ...values) {
	b.t.Helper()
	list := listOf(b.t, items)
	await.Until(b.t, "the objects are applied", func() error {
		_, err := kubectl(list, "apply", "--validate=strict", "-f", "-")
		return err
	})
}

// part runs a part of a test that shares the node with other parts. It leaves no pod and no claim.
func (b *draBed) part(name string, test func()) {
	b.whole.Run(name, func(t *testing.T) {
		b.t = t
		defer func() { b.t = b.whole }()
		b.waitPublished()
		defer b.clean()
		began := time.Now()
		test()
		t.Logf("took %v", time.Since(began).Round(100*time.Millisecond))
	})
}

// clean deletes what a part has left in the namespace of the pods, and waits until it is gone. A pod of the same name must not be taken for
// one before it by its log.
func (b *draBed) clean() {
	b.t.Helper()
	if _, err := kubectl("", "delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--timeout", "30s"); err != nil {
		b.t.Error(err)
	}
	logs, _ := filepath.Glob("/var/log/pods/default_*") // fails on a bad pattern only
	for _, dir := range logs {
		if err := os.RemoveAll(dir); err != nil {
			b.t.Error(err)
		}
	}
}

// own makes the plugin or the driver the owner of the node's LPUs.
func (b *draBed) own(who string) {
	b.t.Helper()
	machine.Lpuctl(b.t, "--root", nodeRoot, "owner", "set", who)
}

// start starts a driver as the DaemonSet does. It outlives a part.
func (b *draBed) start() { b.startAs("first", listen) }

// startAs starts a driver as the pod of some UID, beside which another one may run.
func (b *draBed) startAs(uid, listen string, args ...string) {
	b.t.Helper()
	b.driver = machine.Start(b.whole, append([]string{
		os.Getenv("DRA"), "serve", "--root", nodeRoot, "--kubeconfig", driverConfig, "--node-name", nodeName,
		"--pod-uid", uid, "--listen", listen,
	}, args...)...)
}

// waitReady waits until a driver says that it is.
func (b *draBed) waitReady(listen string) {
	b.t.Helper()
	await.Until(b.t, "the driver is ready", func() error {
		if !b.driver.Running() {
			b.t.Fatalf("it ended: %s", b.driver.Said(1000))
		}
		_, err := get("http://" + listen + "/readyz")
		return err
	})
}

// device is what is read of a published device.
type device struct {
	Name       string
	Attributes map[string]struct {
		Int             *int
		String, Version string
		Bool            *bool
	}
	Capacity map[string]struct{ Value string }
	Taints   []struct{ Key, Value, Effect string }
	Consumes []struct {
		CounterSet string
		Counters   map[string]any
	} `json:"consumesCounters"`
}

// size is how many LPUs a device has.
func (d device) size() int {
	if n := d.Attributes["size"].Int; n != nil {
		return *n
	}
	return 0
}

// has tells whether a device has an LPU, of which it consumes the counter.
func (b *bed) has(d device, lpu int) bool {
	for _, c := range d.Consumes {
		if _, ok := c.Counters[strings.ReplaceAll(b.id(lpu), ".", "-")]; ok {
			return true
		}
	}
	return false
}

// slice is what is read of a ResourceSlice.
type slice struct {
	Metadata struct {
		Name, UID       string
		OwnerReferences []struct{ Kind, Name, UID string }
	}
	Spec struct {
		Driver, NodeName string
		Pool             struct {
			Name                           string
			Generation, ResourceSliceCount int
		}
		Devices        []device
		SharedCounters []struct {
			Name     string
			Counters map[string]any
		}
	}
}

// slices are those of our driver's name that the API server has.
func (b *bed) slices() ([]slice, error) {
	var list struct{ Items []slice }
	err := ask(http.MethodGet, resources+"/resourceslices", nil, &list)
	return slices.DeleteFunc(list.Items, func(s slice) bool { return s.Spec.Driver != driverName }), err
}

// devices are those of the node's pool, once all of its slices are of one generation, as a scheduler wants them.
func (b *bed) devices() (found []device, err error) {
	all, err := b.slices()
	for _, s := range all {
		if s.Spec.Pool.ResourceSliceCount != len(all) || s.Spec.Pool.Generation != all[0].Spec.Pool.Generation {
			err = errors.Join(err, fmt.Errorf("the pool is not whole: %d slices, %+v", len(all), s.Spec.Pool))
		}
		found = append(found, s.Spec.Devices...)
	}
	return found, err
}

// waitDevices waits until what is published is as wanted.
func (b *bed) waitDevices(what string, wrong func([]device) error) {
	b.t.Helper()
	began := time.Now()
	await.Until(b.t, what, func() error {
		found, err := b.devices()
		if err == nil {
			err = wrong(found)
		}
		return err
	})
	b.t.Logf("%s after %v", what, time.Since(began).Round(10*time.Millisecond))
}

// sizes are how many devices there are of each size.
func sizes(devices []device) map[int]int {
	n := map[int]int{}
	for _, d := range devices {
		n[d.size()]++
	}
	return n
}

// ringSizes are those of a ring of eight: an arc from each LPU on, and the ring itself.
var ringSizes = map[int]int{1: 8, 2: 8, 4: 8, 8: 1}

// waitPublished waits until the whole ring is published, and no LPU is tainted but some.
func (b *bed) waitPublished(withheld ...int) {
	b.t.Helper()
	b.waitDevices(fmt.Sprintf("the ring is published but for %v", withheld), func(devices []device) error {
		return errors.Join(checkSizes(devices), b.checkTaints(devices, withheld))
	})
}

func checkSizes(devices []device) error {
	if got := sizes(devices); !maps.Equal(got, ringSizes) {
		return fmt.Errorf("there are devices of sizes %v", got)
	}
	return nil
}

// checkTaints checks that those devices are tainted that have one of some LPUs, and no other.
func (b *bed) checkTaints(devices []device, lpus []int) error {
	for _, d := range devices {
		want := slices.ContainsFunc(lpus, func(lpu int) bool { return b.has(d, lpu) })
		if want != (len(d.Taints) > 0) {
			return fmt.Errorf("LPUs %v must not be given, but %s has taints %v", lpus, d.Name, d.Taints)
		}
	}
	return nil
}

var apiClient = http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

// ask asks the API server. kubectl takes a fifth of a second to start, which is too much where time is measured.
func ask(method, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, "https://"+machine.Address+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer e2e")
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r, err := apiClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	data, err = io.ReadAll(r.Body)
	if err == nil && r.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, r.Status, data)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(data, answer)
	}
	return err
}

// path is that of the objects of a kind in the namespace of the pods.
func path(kind any) string {
	return map[any]string{
		"Pod":                   "/api/v1/namespaces/default/pods",
		"ResourceClaim":         resources + "/namespaces/default/resourceclaims",
		"ResourceClaimTemplate": resources + "/namespaces/default/resourceclaimtemplates",
		"ResourceSlice":         resources + "/resourceslices",
	}[kind]
}

// submit creates objects.
func (b *bed) submit(objects ...values) {
	b.t.Helper()
	for _, o := range objects {
		b.do(ask(http.MethodPost, path(o["kind"]), o, nil))
	}
}

// request is a request for one device of a class.
func request(name, class string) values {
	return values{"name": name, "exactly": values{"deviceClassName": class}}
}

// claimSpec is a claim's, with a request for one device of a class.
func claimSpec(class string) values {
	return values{"devices": values{"requests": []any{request("lpus", class)}}}
}

func claim(name string, spec values) values {
	return values{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
		"metadata": values{"name": name, "namespace": "default"}, "spec": spec,
	}
}

func claimTemplate(name string, spec values) values {
	return values{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
		"metadata": values{"name": name, "namespace": "default"}, "spec": values{"spec": spec},
	}
}

// claimPod is a pod whose container has a claim: one by name (resourceClaimName) or one that is made for it (resourceClaimTemplateName).
func claimPod(name, kind, of string) values {
	pod := podManifest(name, 0)
	spec := pod["spec"].(values)
	spec["resourceClaims"] = []any{values{"name": "lpus", kind: of}}
	mainContainer(spec)["resources"] = values{"claims": []any{values{"name": "lpus"}}}
	return pod
}

// mainContainer is the first one of a pod.
func mainContainer(spec values) values { return spec["containers"].([]any)[0].(values) }

// claimed starts a pod with a claim of its own, of the pod's name, for n connected LPUs, and returns which it has.
func (b *bed) claimed(name string, n int) []int {
	b.t.Helper()
	b.submitClaimed(name, n)
	return b.check(b.t, b.inspect(name), n, true)
}

// submitClaimed creates a pod with a claim of its own, of the pod's name, for n LPUs.
func (b *bed) submitClaimed(name string, n int) {
	b.t.Helper()
	b.submit(claim(name, claimSpec(class(n))), claimPod(name, "resourceClaimName", name))
}

// class is that of devices of n LPUs.
func class(n int) string {
	if n == 1 {
		return "lpu"
	}
	return fmt.Sprintf("lpu-%d", n)
}

// podOfName is a pod as the API server has it.
func (b *bed) podOfName(name string) (p pod, err error) {
	err = ask(http.MethodGet, path("Pod")+"/"+name, nil, &p)
	return p, err
}

// waitEvent waits for an event of a pod that says some words.
func (b *bed) waitEvent(pod string, words ...string) {
	b.t.Helper()
	var list struct {
		Items []struct {
			Message        string
			InvolvedObject struct{ Name string }
		}
	}
	await.Until(b.t, fmt.Sprintf("an event of %s says %q", pod, words), func() error {
		if err := ask(http.MethodGet, "/api/v1/namespaces/default/events", nil, &list); err != nil {
			return err
		}
		var said []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name != pod {
				continue
			}
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) }) {
				return nil
			}
			said = append(said, e.Message)
		}
		return fmt.Errorf("they say %q", said)
	})
}

// waitUnscheduled waits until the scheduler has not found a place for a pod.
func (b *bed) waitUnscheduled(name string) {
	b.t.Helper()
	waitJSON(b.t, "pod/"+name, `.status.conditions[?(@.type=="PodScheduled")].message`, "0/1 nodes are available")
}

// release deletes pods and the claims of their names, and waits until they are gone.
func (b *bed) release(names ...string) {
	b.t.Helper()
	args := []string{"delete", "--ignore-not-found", "--timeout", "30s"}
	for _, name := range names {
		args = append(args, "pod/"+name)
	}
	for _, name := range names {
		args = append(args, "resourceclaim/"+name)
	}
	_, err := kubectl("", args...)
	b.do(err)
}

// waitClaimFiles waits until there are CDI files of so many claims.
func (b *bed) waitClaimFiles(n int) {
	b.t.Helper()
	await.Until(b.t, fmt.Sprintf("there are files of %d claims", n), func() error {
		if files, _ := filepath.Glob(claimFiles); len(files) != n { // fails on a bad pattern only
			return fmt.Errorf("there are %v", files)
		}
		return nil
	})
}
