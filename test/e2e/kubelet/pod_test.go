package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// inspect prints what a container has got of LPUs, and then waits.
const inspect = `env | sort | while read v; do case $v in LPU_*|NUM_LPU*) echo "env $v";; esac; done
for n in /dev/dri/*; do [ -e $n ] || continue; echo "node $n $(stat -c %t:%T $n)"; (exec 3<>$n) 2>/dev/null && echo "opens $n"; done
` + machine.PrintTable + `
echo end; trap exit TERM; sleep 1000000 & wait`

// podManifest is a pod of one container that asks for n LPUs.
func podManifest(name string, n int) map[string]any {
	lpus := map[string]string{}
	if n > 0 {
		lpus[resource] = strconv.Itoa(n)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"hostNetwork": true, "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
			"containers": []any{map[string]any{
				"name": "main", "image": machine.Image, "imagePullPolicy": "Never", "command": []string{"sh", "-c", inspect},
				"resources": map[string]any{"limits": lpus},
			}},
		},
	}
}

// put gives the kubelet a static pod. A name can be used once: the kubelet remembers.
func (b *bed) put(name string, n int) {
	b.t.Helper()
	hidden := filepath.Join(manifests, "."+name)
	machine.Write(b.t, hidden, toJSON(b.t, podManifest(name, n)))
	if err := os.Rename(hidden, filepath.Join(manifests, name+".json")); err != nil {
		b.t.Fatal(err)
	}
}

// remove takes static pods away and waits until their LPUs are free.
func (b *bed) remove(names ...string) {
	b.t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(manifests, name+".json")); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, name := range names {
		await.Until(b.t, name+" is gone", func() error {
			if _, err := b.pod(name); err == nil {
				return errors.New("it is not")
			}
			return nil
		})
	}
}

// pod is what is read of a pod's state.
type pod struct {
	Metadata struct{ Name, Namespace, DeletionTimestamp string }
	Status   struct {
		Phase, Reason, Message, PodIP string
		ContainerStatuses             []struct {
			Ready        bool
			RestartCount int
			State        struct {
				Waiting struct{ Reason, Message string }
			}
			AllocatedResourcesStatus []struct {
				Name      string
				Resources []struct{ ResourceID, Health, Message string }
			}
		}
	}
}

// pods are those that the kubelet knows of.
func (b *bed) pods() ([]pod, error) {
	data, err := get("http://127.0.0.1:10255/pods")
	if err != nil {
		return nil, err
	}
	var list struct{ Items []pod }
	return list.Items, json.Unmarshal(data, &list)
}

func (b *bed) pod(name string) (pod, error) {
	pods, err := b.pods()
	if err != nil {
		return pod{}, err
	}
	for _, p := range pods {
		if p.Metadata.Name == name+"-"+nodeName {
			return p, nil
		}
	}
	return pod{}, fmt.Errorf("there is no pod %s", name)
}

// waitPhase waits until a pod is in a phase.
func (b *bed) waitPhase(name, phase string) pod {
	b.t.Helper()
	var p pod
	await.Until(b.t, name+" is "+phase, func() (err error) {
		if p, err = b.pod(name); err == nil && p.Status.Phase != phase {
			err = fmt.Errorf("it is %+v", p.Status)
		}
		return err
	})
	return p
}

// health is what a pod's state says of its LPUs, by device id.
func (p pod) health() map[string]string {
	health := map[string]string{}
	for _, c := range p.Status.ContainerStatuses {
		for _, r := range c.AllocatedResourcesStatus {
			for _, d := range r.Resources {
				health[d.ResourceID] = d.Health
			}
		}
	}
	return health
}

// container is what inspect printed.
type container struct {
	env   map[string]string
	nodes []string // with their numbers: "/dev/dri/renderD128 a:e5"
	opens []string
	table string // its ring table, as PrintTable prints it
	// reaches are the numbers of devices that it opened by a node of its own making.
	reaches []string
}

// run starts a pod of n LPUs and returns what its container has.
func (b *bed) run(name string, n int) container {
	b.t.Helper()
	b.put(name, n)
	return b.inspect(name + "-" + nodeName)
}

// inspect reads what the container of a pod printed.
func (b *bed) inspect(pod string) container { return b.inspectAgain(pod, 0) }

// inspectAgain reads what the container of a pod printed that was started after so many restarts.
func (b *bed) inspectAgain(pod string, restarts int) container {
	b.t.Helper()
	return b.inspectContainer(pod, "main", restarts)
}

// inspectContainer reads what one of a pod's containers printed that was started after so many restarts.
func (b *bed) inspectContainer(pod, name string, restarts int) container {
	b.t.Helper()
	c := container{env: map[string]string{}}
	await.Until(b.t, pod+" has run", func() error {
		logs, _ := filepath.Glob(fmt.Sprintf("/var/log/pods/default_%s_*/%s/%d.log", pod, name, restarts))
		if len(logs) == 0 {
			return fmt.Errorf("it has no log: %+v", b.state(pod))
		}
		data, err := os.ReadFile(logs[0])
		if err != nil {
			return err
		}
		if !strings.HasSuffix(string(data), " end\n") {
			return fmt.Errorf("its log is %q", data)
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line) // time, stream, whole or part, text
			switch fields[3] {
			case "env":
				name, value, _ := strings.Cut(fields[4], "=")
				c.env[name] = value
			case "node":
				c.nodes = append(c.nodes, fields[4]+" "+fields[5])
			case "opens":
				c.opens = append(c.opens, fields[4])
			case "reaches":
				c.reaches = append(c.reaches, fields[4])
			case "table":
				c.table += strings.Join(fields[3:], " ") + "\n"
			}
		}
		return nil
	})
	return c
}

func (b *bed) state(name string) any {
	p, err := b.pod(strings.TrimSuffix(name, "-"+nodeName))
	if err != nil {
		return err
	}
	return p.Status
}

// id is the name under which the kubelet knows an LPU.
func (b *bed) id(lpu int) string {
	return "pci-" + strings.ReplaceAll(b.node.Card(lpu).Address.String(), ":", "-")
}

// check checks that a container has n LPUs, with the nodes that these have now, and nothing else, and returns which.
func (b *bed) check(t *testing.T, c container, n int, connected bool) []int {
	t.Helper()
	var indices, order []int
	for part := range strings.SplitSeq(c.env["LPU_VISIBLE_DEVICES"], ",") {
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < b.node.LPUs() {
			indices = append(indices, i)
		}
	}
	sorted := slices.Sorted(slices.Values(indices))
	var nodes, opens []string
	for _, i := range indices {
		card := b.node.Card(i)
		nodes = append(nodes, fmt.Sprintf("%s %x:%x", card.Node, card.Numbers.Major, card.Numbers.Minor))
		opens = append(opens, card.Node)
		order = append(order, slices.Index(sorted, i))
	}
	slices.Sort(nodes)
	slices.Sort(opens)
	want := map[string]string{
		"LPU_RING_ORDER":  strings.Trim(strings.ReplaceAll(fmt.Sprint(order), " ", ","), "[]"),
		"LPU_CONNECTED":   strconv.FormatBool(connected),
		"NUM_LPU_DEVICES": strconv.Itoa(n),
	}
	for name, value := range want {
		if c.env[name] != value {
			t.Errorf("%s is %q, want %q: %v", name, c.env[name], value, c.env)
		}
	}
	if len(indices) != n || !slices.Equal(c.nodes, nodes) || !slices.Equal(c.opens, opens) {
		t.Errorf("LPUs %v of %d, nodes %v that open %v, want %v", indices, n, c.nodes, c.opens, nodes)
	} else if err := b.ring(c, connected, indices); err != nil {
		t.Errorf("by the ring table of LPUs %v HyperDex is wrong: %v", indices, err)
	}
	return indices
}

// ring returns an error unless HyperDex' program is right by the ring table that a container has.
func (b *bed) ring(c container, connected bool, lpus []int) error {
	server := b.server()
	if connected {
		return server.Right(c.ringPrint(), lpus...)
	}
	var ones [][]int
	for _, lpu := range lpus {
		ones = append(ones, []int{lpu})
	}
	return server.Apart(c.ringPrint(), ones...)
}

// server is what the simulated server is now, whose nodes may have been exchanged.
func (b *bed) server() machine.Server {
	b.cabled.Nodes = map[string]int{}
	for i := range b.node.LPUs() {
		b.cabled.Nodes[b.node.Card(i).Node] = i
	}
	return b.cabled
}

// ringPrint is what [machine.PrintRing] would have printed in a container.
func (c container) ringPrint() string {
	text := c.table
	for _, node := range c.opens {
		text += "node " + node + "\n"
	}
	return text
}
