package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/dra/claim"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// owner runs lpuctl owner on the node, and returns what it prints.
func (n *observedNode) owner(args ...string) string {
	n.Helper()
	out, err := n.lpuctl(append([]string{"owner"}, args...)...).CombinedOutput()
	if err != nil {
		n.Fatalf("owner %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestServeFollowsTheOwner while it runs, at a start, and when the file breaks.
func TestServeFollowsTheOwner(t *testing.T) {
	const lpu1 = `lpuctl_lpu_healthy{lpu="lpu1",device="pci-0000-44-00.1"} `
	const healthy, withheld = lpu1 + "1", lpu1 + "0"
	const elsewhere, limit = "registered: the LPUs of this node are handed out by the DRA driver (lpuctl-dra)\n", 20 * time.Second
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	file := filepath.Join(n.root, node.StateDir, "owner.json")
	s := n.servesMetrics("--plugin-dir", "/kubelet")
	s.eventually(limit, "/readyz", 200, "registered\n")
	s.eventually(limit, "/metrics", 200, healthy)
	if _, err := os.Stat(file); err == nil {
		t.Error("serve has written the owner, and nobody told it to")
	}
	if got := n.owner("show"); !strings.Contains(got, "plugin  -      -   yes          no") {
		t.Errorf("show: %s", got)
	}
	n.owner("set", "dra")
	s.eventually(limit, "/readyz", 200, elsewhere)
	s.eventually(limit, "/metrics", 200, withheld)
	n.owner("set", "plugin")
	s.eventually(limit, "/metrics", 200, healthy)
	n.plant(strings.TrimPrefix(file, n.root), "{")
	s.eventually(limit, "/readyz", 503, "it is not known who hands out the LPUs of this node: ")
	s.eventually(limit, "/metrics", 200, withheld)
	n.owner("set", "dra")
	kill(s.command)

	s = n.servesMetrics("--plugin-dir", "/kubelet")
	s.eventually(limit, "/readyz", 200, elsewhere)
	kill(s.command)
	s = n.servesMetrics("--plugin-dir", "/kubelet", "--owner", "plugin")
	s.eventually(limit, "/readyz", 200, "registered\n")
	s.eventually(limit, "/metrics", 200, `lpuctl_owner{owner="plugin"} 1`)
	if got := n.owner("show", "-o", "json"); !strings.Contains(got, `"by": "lpuctl serve --owner"`) {
		t.Errorf("show: %s", got)
	}

	n.plant(filepath.Join(node.StateDir, claim.DirName, "1234.json"), "{") // nobody knows which LPUs it has
	s.eventually(limit, "/readyz", 503, "1234.json")
	s.eventually(limit, "/metrics", 200, withheld)
	if err := os.Remove(filepath.Join(n.root, node.StateDir, claim.DirName, "1234.json")); err != nil {
		t.Fatal(err)
	}
	s.eventually(limit, "/metrics", 200, healthy)
	n.plant(filepath.Join(node.StateDir, claim.DirName, "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01.json"), `{
		"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "DRAClaim", "version": 1, "boot": "", "state": "completed",
		"since": "2026-11-23T05:00:00Z", "namespace": "team", "name": "job", "uid": "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01",
		"requests": [{"name": "lpus", "devices": [{"name": "lpu1-0000-44-00-1-681c5c16", "members": ["0000:44:00.1"]}]}]}`)
	s.eventually(limit, "/metrics", 200, withheld)
	s.eventually(limit, "/metrics", 200, `lpuctl_lpu_healthy{lpu="lpu0",device="pci-0000-43-00.1"} 1`)
	s.eventually(limit, "/readyz", 200, "registered\n")
}
