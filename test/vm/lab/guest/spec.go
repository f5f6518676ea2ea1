package guest

import (
	"encoding/json"
	"os"
	"time"
)

// spec is what the CDI spec said since a time.
type spec struct {
	at    time.Time
	nodes map[string]string // path of the node by name of the device, of devices with one node
}

const specFile = "/var/run/cdi/hyperaccel.ai-lpu.json"

// watchSpec keeps what the spec says whenever the file is replaced, until end is closed.
func (n *Node) watchSpec(end <-chan struct{}) {
	var last os.FileInfo
	for {
		if now, err := os.Stat(specFile); err == nil && (last == nil || !os.SameFile(last, now)) {
			last = now
			nodes, err := readSpec()
			n.mu.Lock()
			n.specs = append(n.specs, spec{time.Now(), nodes})
			n.mu.Unlock()
			n.try(err)
		}
		select {
		case <-end:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func readSpec() (map[string]string, error) {
	var file struct {
		Devices []struct {
			Name           string
			ContainerEdits struct{ DeviceNodes []struct{ Path string } }
		}
	}
	data, err := os.ReadFile(specFile)
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	nodes := map[string]string{}
	for _, d := range file.Devices {
		if len(d.ContainerEdits.DeviceNodes) == 1 {
			nodes[d.Name] = d.ContainerEdits.DeviceNodes[0].Path
		}
	}
	return nodes, err
}

// SpecKeeps wants the spec to give an LPU a node, and to have done so since before the fault.
func (n *Node) SpecKeeps(c Card, node string) {
	n.t.Helper()
	if took := n.Spec(c, node); took > 0 {
		n.t.Errorf("the spec gives %s the node %s only since %d ms after the fault", c.ID(), node, took.Milliseconds())
	}
}

// Spec waits until the spec gives an LPU a node, or has no device for it (""), and returns how
// long after the fault that began.
func (n *Node) Spec(c Card, node string) time.Duration {
	n.t.Helper()
	what := "the spec gives " + c.ID() + " the node " + node
	if node == "" {
		what = "the spec has no " + c.ID()
	}
	return n.since(what, func() (time.Time, bool) {
		var since time.Time
		holds := false
		for _, s := range n.specs {
			if is := s.nodes[c.ID()] == node; is != holds {
				since, holds = s.at, is
			}
		}
		return since, holds
	})
}
