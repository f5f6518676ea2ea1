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

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const (
	chart     = "../../../packaging/helm/lpuctl"
	namespace = "lpuctl-system"
)

type values = map[string]any

// render renders the chart with values.
func render(t *testing.T, v values) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Getenv("HELM"), "template", "lpuctl", chart, "--namespace", namespace, "--values", "-")
	cmd.Stdin = strings.NewReader(toJSON(t, v))
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// install applies a manifest, with the directories of the simulated server, and waits for the DaemonSet's pod to be ready.
func (b *bed) install(manifest string) {
	b.t.Helper()
	items := objects(b.t, manifest)
	for _, object := range items {
		if object["kind"] == "DaemonSet" {
			onServer(b.t, podSpec(object))
		}
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	if out, err := kubectl(toJSON(b.t, list), "apply", "--validate=strict", "-f", "-"); err != nil {
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
	machine.Eventually(b.t, 40*time.Second, "there is one pod of the DaemonSet", func() error {
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
func (b *bed) waitSample(limit time.Duration, url, line string) {
	b.t.Helper()
	began := time.Now()
	machine.Eventually(b.t, limit, line, func() error {
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
	startDaemonSets(t)
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
}

func (b *bed) allValues(t *testing.T) {
	defer func(outer *testing.T) { b.t = outer }(b.t)
	b.t = t
	var rings [2][]string
	for i := range b.node.LPUs() {
		rings[i/4] = append(rings[i/4], b.node.Card(i).Address.String())
	}
	all := values{
		"createNamespace": true,
		"podResources":    values{"enabled": true},
		"nfd":             values{"enabled": true},
		"config":          values{"topology": []any{values{"nodes": []any{"no*"}, "labels": values{"switch": "leaf-1"}}}},
		"ringTable":       toJSON(t, values{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "RingTable", "rings": rings}),
	}
	install := func(v values) {
		t.Helper()
		manifest, err := render(t, v)
		if err != nil {
			t.Fatal(err)
		}
		b.install(manifest)
	}
	install(all)
	b.waitAllocatable(8)
	b.checkConfined()
	b.checkFeatures("hyperaccel.ai/lpu.count=8", "hyperaccel.ai/lpu.ring.sizes=4_4", "topology.hyperaccel.ai/switch=leaf-1")

	if _, err := kubectl(toJSON(t, podManifest("four", 4)), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	got := b.check(t, b.inspect("four"), 4, true)
	url, lost := b.url(), got[0]
	healthy := fmt.Sprintf("lpuctl_lpu_healthy{lpu=%q,device=%q} ", fmt.Sprintf("lpu%d", lost), b.id(lost))
	b.waitSample(time.Second, url, healthy+"1")
	b.do(b.node.Unplug(lost))
	b.waitSample(3*time.Second, url, healthy+"0")
	b.waitAllocatable(7)
	b.do(b.node.Replug(lost))
	b.waitSample(20*time.Second, url, healthy+"1")
	b.waitAllocatable(8)
	b.waitSample(12*time.Second, url, "lpuctl_free_lpus 4")

	// The same with overlap, which is a rollout without a gap.
	watched := b.watchAllocatable()
	with := maps.Clone(all)
	with["overlap"] = true
	install(with)
	b.waitSample(12*time.Second, b.url(), "lpuctl_free_lpus 4")
	if least, _ := watched(8); least != 8 {
		t.Errorf("at one moment only %d LPUs were allocatable", least)
	}
	if _, err := kubectl(toJSON(t, podManifest("two", 2)), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for _, lpu := range b.check(t, b.inspect("two"), 2, true) {
		if slices.Contains(got, lpu) {
			t.Errorf("LPU %d is given twice", lpu)
		}
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
	machine.Eventually(b.t, 10*time.Second, "the feature file is there", func() error {
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
