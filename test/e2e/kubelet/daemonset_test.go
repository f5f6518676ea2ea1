package kubelet

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const (
	chart     = "../../../packaging/helm/lpuctl"
	namespace = "lpuctl-system"
)

type values = map[string]any

// template is what Helm makes of the chart with values.
func template(t *testing.T, v values) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Getenv("HELM"), "template", "lpuctl", chart, "--namespace", namespace, "--values", "-")
	cmd.Stdin = strings.NewReader(toJSON(t, v))
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// render is the objects of the chart with values.
func render(t *testing.T, v values) []map[string]any {
	t.Helper()
	manifest, err := template(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, manifest)
}

// install applies objects, with the directories of the simulated server, and waits for the DaemonSet's pod to be ready.
func (b *bed) install(items []map[string]any) {
	b.t.Helper()
	for _, object := range items {
		if object["kind"] == "DaemonSet" {
			onServer(b.t, podSpec(object))
		}
	}
	if out, err := kubectl(listOf(b.t, items), "apply", "--validate=strict", "-f", "-"); err != nil {
		b.t.Fatal(out, err)
	}
	b.rollOut()
}

// rollOut waits until the DaemonSet's pod is of its latest template, and ready.
func (b *bed) rollOut() {
	b.t.Helper()
	began := time.Now()
	if _, err := kubectl("", "rollout", "status", "daemonset/lpuctl", "--namespace", namespace, "--timeout", "1m"); err != nil {
		pods, _ := b.pods()
		events, _ := kubectl("", "get", "events", "--namespace", namespace, "-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		b.t.Fatalf("%v\n%+v\n%s", err, pods, events)
	}
	b.t.Logf("rolled out after %v", time.Since(began).Round(100*time.Millisecond))
	b.keepLogs()
}

// keepLogs opens the logs of the DaemonSet's pods that there are now: the kubelet removes them with the pod.
func (b *bed) keepLogs() {
	logs, _ := filepath.Glob("/var/log/pods/" + namespace + "_*/lpuctl/*.log") // fails on a bad pattern only
	for _, path := range logs {
		if b.logs[path] == nil {
			file, err := os.Open(path)
			b.do(err)
			if b.logs == nil {
				b.logs = map[string]*os.File{}
			}
			b.logs[path] = file
		}
	}
}

// said is what the pods have logged whose logs were kept, by the path of the log, each line as JSON.
func (b *bed) said() map[string]string {
	b.t.Helper()
	said := map[string]string{}
	for path, file := range b.logs {
		var text strings.Builder
		_, err := io.Copy(&text, io.NewSectionReader(file, 0, 1<<20))
		b.do(err)
		said[path] = text.String()
	}
	return said
}

// daemon is the DaemonSet's pod, as soon as there is only one.
func (b *bed) daemon() (found pod) {
	b.t.Helper()
	await.Until(b.t, "there is one pod of the DaemonSet", func() error {
		pods, err := b.pods()
		pods = slices.DeleteFunc(pods, func(p pod) bool { return p.Metadata.Namespace != namespace })
		if err != nil || len(pods) != 1 {
			return fmt.Errorf("%+v %w", pods, err)
		}
		found = pods[0]
		return nil
	})
	return found
}

// url is that of the DaemonSet's metrics.
func (b *bed) url() string { return "http://" + b.daemon().Status.PodIP + ":9477/metrics" }

// waitSample waits until the metrics have a line.
func (b *bed) waitSample(url, line string) {
	b.t.Helper()
	began := time.Now()
	await.Until(b.t, line, func() error {
		data, err := get(url)
		if err == nil && !strings.Contains(string(data), "\n"+line+"\n") {
			err = fmt.Errorf("the metrics are %s", data)
		}
		return err
	})
	b.t.Logf("%s after %v", line, time.Since(began).Round(100*time.Millisecond))
}

// process reads a file of the one process in the DaemonSet's pod.
func (b *bed) process(file string) string {
	b.t.Helper()
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // fails on a bad pattern only
	for _, path := range commands {
		if command, err := os.ReadFile(path); err == nil && strings.Contains(string(command), "\x00serve\x00--root\x00/host\x00") {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
			b.do(err)
			return string(data)
		}
	}
	b.t.Fatal("no process runs serve")
	return ""
}

// newDaemonSets starts a cluster that runs DaemonSets, and has the images of this version and of the one before.
func newDaemonSets(t *testing.T) *bed {
	t.Helper()
	previous := os.Getenv("PREVIOUS") + "/lpuctl-image.tar"
	need(t, kubernetes("kube-controller-manager"), "ip", os.Getenv("HELM"))
	b := newCluster(t)
	machine.BindMount(t, "/var/lib/lpuctl", nodeRoot+"/var/lib/lpuctl")
	startControllers(t, "daemonset-controller")
	t.Cleanup(func() {
		for path, text := range b.said() {
			if t.Failed() {
				t.Logf("== %s:\n%s", path, text)
			}
			_ = b.logs[path].Close()
		}
	})
	for _, archive := range []string{os.Getenv("IMAGE"), previous} {
		machine.Output(t, "ctr", "-n", "k8s.io", "images", "import", archive)
	}
	return b
}

// TestDaemonSet runs the pods that the chart makes, with everything on, as the kubelet and the DaemonSet's controller run them: by the
// image, with a network of their own, a read-only root and no capability.
func TestDaemonSet(t *testing.T) {
	b := newDaemonSets(t)
	t.Run("all values", b.allValues)
	machine.Lpuctl(t, "--root", nodeRoot, "cordon", "lpu7", "--reason", "test")
	t.Run("upgrade and rollback", func(t *testing.T) { b.thereAndBack(t, false) })
	t.Run("upgrade and rollback with overlap", func(t *testing.T) { b.thereAndBack(t, true) })
}

func (b *bed) allValues(t *testing.T) {
	defer func(outer *testing.T) { b.t = outer }(b.t)
	b.t = t
	all := values{
		"createNamespace": true,
		"podResources":    values{"enabled": true},
		"nfd":             values{"enabled": true},
		"config":          values{"topology": []any{values{"nodes": []any{"no*"}, "labels": values{"switch": "leaf-1"}}}},
		"ringTable":       ringTable(t, b.rings(4)),
	}
	defer func(whole machine.Server) { b.cabled = whole }(b.cabled)
	b.cabled = b.server().InRings(4)
	b.install(render(t, all))
	b.waitAllocatable(8)
	b.checkConfined()
	b.checkFeatures("hyperaccel.ai/lpu.count=8", "hyperaccel.ai/lpu.ring.sizes=4_4", "topology.hyperaccel.ai/switch=leaf-1")

	got := b.start("four", 4)
	url, lost := b.url(), got[0]
	healthy := fmt.Sprintf("lpuctl_lpu_healthy{lpu=%q,device=%q} ", fmt.Sprintf("lpu%d", lost), b.id(lost))
	b.waitSample(url, healthy+"1")
	b.do(b.node.Unplug(lost))
	b.waitSample(url, healthy+"0")
	b.waitAllocatable(7)
	b.do(b.node.Replug(lost))
	b.waitSample(url, healthy+"1")
	b.waitAllocatable(8)
	b.waitSample(url, fmt.Sprintf(
		`lpuctl_container_lpu{lpu="lpu%d",device=%q,namespace="default",pod="four",container="main"} 1`, lost, b.id(lost)))
	b.checkConfigMap()

	// The same with overlap, which is a rollout without a gap.
	watched := b.watchAllocatable()
	all["overlap"] = true
	b.install(render(t, all))
	b.waitSample(b.url(), "lpuctl_free_lpus 4")
	for _, lpu := range b.start("two", 2) {
		if slices.Contains(got, lpu) {
			t.Errorf("LPU %d is given twice", lpu)
		}
	}
	if least, _ := watched(8); least != 8 {
		t.Errorf("at one moment only %d LPUs were allocatable", least)
	}
	b.deletePods("four", "two")
}

// checkConfigMap replaces the files of the chart's ConfigMap. The pod takes the new ring table as the kubelet renews it below, and goes on
// with the configuration before, as the new one has faults.
func (b *bed) checkConfigMap() {
	b.t.Helper()
	name, url := b.daemon().Metadata.Name, b.url()
	b.waitSample(url, "lpuctl_config_valid 1")
	patch := toJSON(b.t, values{"data": values{"config.yaml": "topologie: []\n", "ring.yaml": ringTable(b.t, b.rings(8))}})
	if out, err := kubectl("", "patch", "configmap", "lpuctl", "--namespace", namespace, "-p", patch); err != nil {
		b.t.Fatal(out, err)
	}
	b.waitSample(url, "lpuctl_config_valid 0")
	b.checkFeatures("hyperaccel.ai/lpu.ring.sizes=8", "topology.hyperaccel.ai/switch=leaf-1")
	if got := b.daemon(); got.Metadata.Name != name || got.Status.ContainerStatuses[0].RestartCount != 0 {
		b.t.Errorf("%s was started again, or replaced by %+v", name, got)
	}
}

// rings are rings of so many LPUs each, by address.
func (b *bed) rings(size int) [][]string {
	var addresses []string
	for i := range b.node.LPUs() {
		addresses = append(addresses, b.node.Card(i).Address.String())
	}
	return slices.Collect(slices.Chunk(addresses, size))
}

func ringTable(t *testing.T, rings [][]string) string {
	t.Helper()
	return toJSON(t, values{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "RingTable", "rings": rings})
}

// start lets the scheduler start a pod of n LPUs, which have to be connected, and returns which it has.
func (b *bed) start(name string, n int) []int {
	b.t.Helper()
	if _, err := kubectl(toJSON(b.t, podManifest(name, n)), "create", "-f", "-"); err != nil {
		b.t.Fatal(err)
	}
	return b.check(b.t, b.inspect(name), n, true)
}

// deletePods does not wait for their end.
func (b *bed) deletePods(names ...string) {
	b.t.Helper()
	if _, err := kubectl("", append([]string{"delete", "pod", "--wait=false"}, names...)...); err != nil {
		b.t.Fatal(err)
	}
}

// checkConfined checks what the process of the DaemonSet's pod may do.
func (b *bed) checkConfined() {
	b.t.Helper()
	status := b.process("status")
	for _, line := range []string{
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, "\n"+line+"\n") {
			b.t.Errorf("no %q in %s", line, status)
		}
	}
	mounts := b.process("mounts")
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		writable := strings.HasPrefix(fields[3]+",", "rw,")
		switch fields[1] {
		case "/", "/host/sys", "/host/dev", "/host/opt", "/config", "/host/var/lib/kubelet/pod-resources":
			if writable {
				b.t.Errorf("it may write to %s", line)
			}
		}
	}
}

// checkFeatures checks lines of the one file that node-feature-discovery would read.
func (b *bed) checkFeatures(lines ...string) {
	b.t.Helper()
	await.Until(b.t, "the feature file is there", func() error {
		files, _ := filepath.Glob(nodeRoot + featureDir + "/[^.]*")
		if len(files) != 1 {
			return fmt.Errorf("there are %v", files)
		}
		data, err := os.ReadFile(files[0])
		for _, line := range lines {
			if !strings.Contains("\n"+string(data), "\n"+line+"\n") {
				err = errors.Join(err, fmt.Errorf("no %s in %s", line, data))
			}
		}
		return err
	})
}

// previous is the objects of the version before, which had no chart, as its manifest says to change them for overlap.
func previous(t *testing.T, overlap bool) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(os.Getenv("PREVIOUS") + "/source/packaging/kubernetes/lpuctl.yaml")
	if err != nil {
		t.Fatal(err)
	}
	items := objects(t, string(data))
	for _, object := range items {
		if object["kind"] == "DaemonSet" && overlap {
			object["spec"].(map[string]any)["updateStrategy"] = values{"rollingUpdate": values{"maxSurge": 1, "maxUnavailable": 0}}
			main := podSpec(object)["containers"].([]any)[0].(map[string]any)
			main["args"] = append(main["args"].([]any), "--overlap")
		}
	}
	return items
}

// thereAndBack goes from the version before to this one and back, under a pod that keeps its LPUs. One LPU is cordoned, and each start
// finds one that is being reset, and a ring table that was broken meanwhile: both versions have to know of all three by the files of the
// other.
func (b *bed) thereAndBack(t *testing.T, overlap bool) {
	defer func(outer *testing.T) { b.t = outer }(b.t)
	b.t = t
	const want = 7 // but for the one that is cordoned
	earlier := b.said()
	b.install(previous(t, overlap))
	b.waitAllocatable(want)
	keeper, up, down := fmt.Sprintf("keeper-%v", overlap), fmt.Sprintf("up-%v", overlap), fmt.Sprintf("down-%v", overlap)
	kept := b.start(keeper, 2)
	watched := b.watchAllocatable()
	used := slices.Concat(kept, b.replace(up, func() {
		b.install(render(t, values{"createNamespace": true, "overlap": overlap}))
	}, kept, b.rings(4)))
	b.replace(down, func() {
		if overlap {
			b.install(previous(t, overlap))
			return
		}
		if out, err := kubectl("", "rollout", "undo", "daemonset/lpuctl", "--namespace", namespace); err != nil {
			t.Fatal(out, err)
		}
		b.rollOut()
	}, used, b.rings(8))
	least, longest := watched(want)
	t.Logf("allocatable: at least %d of %d, fewer for at most %v at a time", least, want, longest.Round(10*time.Millisecond))
	if overlap && least != want {
		t.Error("that is a gap")
	}
	b.checkUntouched(keeper, kept)
	logs := b.said()
	maps.DeleteFunc(logs, func(path, _ string) bool { _, ok := earlier[path]; return ok })
	if len(logs) != 3 {
		t.Errorf("%d pods of the DaemonSet have run, want 3", len(logs))
	}
	for _, line := range complaints(logs) {
		t.Errorf("a version complains: %s", line)
	}
	b.deletePods(keeper, up, down)
}

// checkUntouched checks that a pod runs as it was started, and has its LPUs, all healthy.
func (b *bed) checkUntouched(name string, lpus []int) {
	b.t.Helper()
	want := map[string]string{}
	for _, lpu := range lpus {
		want[b.id(lpu)] = "Healthy"
	}
	pods, err := b.pods()
	b.do(err)
	i := slices.IndexFunc(pods, func(p pod) bool { return p.Metadata.Name == name })
	if i < 0 || !maps.Equal(pods[i].health(), want) || pods[i].Status.ContainerStatuses[0].RestartCount != 0 {
		b.t.Errorf("the pod that was there before, with %v, is not as it was: %+v", want, pods)
	}
}

// replace installs a version, and checks by a pod that it goes on with what the one before it knew, and has written to files.
func (b *bed) replace(pod string, install func(), used []int, rings [][]string) (more []int) {
	b.t.Helper()
	const reset, table = 6, nodeRoot + "/etc/lpuctl/ring.yaml"
	machine.Write(b.t, table, ringTable(b.t, rings))
	await.Until(b.t, "the cabling is kept", func() error {
		var kept struct{ Rings [][]string }
		data, err := os.ReadFile("/var/lib/lpuctl/last-ring.yaml")
		if err = errors.Join(err, yaml.Unmarshal(data, &kept)); err == nil && len(kept.Rings) != len(rings) {
			err = fmt.Errorf("%s", data)
		}
		return err
	})
	b.setOffline(reset, "1") // for less than the time of grace
	b.waitScansOf(b.url())
	machine.Write(b.t, table, "{")
	install()
	b.waitAllocatable(7)
	url := b.url()
	b.waitSample(url, fmt.Sprintf("lpuctl_lpu_cordoned{lpu=\"lpu7\",device=%q} 1", b.id(7)))
	b.waitSample(url, `lpuctl_problem{problem="ring-kept",severity="warning"} 1`)
	b.setOffline(reset, "0")
	for _, lpu := range b.start(pod, 2) {
		if lpu == 7 || slices.Contains(used, lpu) {
			b.t.Errorf("%s gets LPU %d, which is cordoned or another pod's", pod, lpu)
		}
		more = append(more, lpu)
	}
	b.do(os.Remove(table))
	if specs, _ := filepath.Glob("/var/run/cdi/[^.]*"); len(specs) != 1 { // fails on a bad pattern only
		b.t.Errorf("there are the specs %v", specs)
	}
	return more
}

// complaints are the warnings and errors in logs, but for those of what the test does, which changes cables under pods that run. The
// version before knows no ring tables, so while two versions run each finds the spec of the other.
func complaints(logs map[string]string) (found []string) {
	const other = `"msg":"the CDI spec in place is not the one that would be made now;`
	for _, text := range logs {
		for line := range strings.Lines(text) {
			expected := slices.ContainsFunc([]string{
				`"msg":"cordoned"`, `"id":"ring-syntax"`, `"id":"ring-kept"`, `"id":"ring-table-stale"`, other,
			}, func(s string) bool { return strings.Contains(line, s) })
			if !expected && !strings.Contains(line, `"level":"INFO"`) {
				found = append(found, line)
			}
		}
	}
	return found
}
