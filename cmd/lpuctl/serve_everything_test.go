package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/test/long"
)

// everythingOn makes a node of so many LPUs and 100 pods, and returns what switches on all that serve can do.
func everythingOn(t *testing.T, lpus int) (n *observedNode, args []string) {
	t.Helper()
	n = &observedNode{T: t, root: filepath.Join(t.TempDir(), "node")}
	var err error
	if n.machine, err = (simulate.Node{Profile: "orion", LPUs: lpus}).Start(n.root); err != nil {
		t.Fatal(err)
	}
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	if err := os.Mkdir(filepath.Join(n.root, "features.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range lpus {
		ids = append(ids, cdi.AddressName(n.machine.Card(i).Address))
	}
	newPodLister(t, filepath.Join(n.root, "pods.sock"), ids, 100)
	runtime := runtimes.Runtime{Name: "containerd", UsedByKubelet: true, CDI: runtimes.On, AfterRestart: runtimes.On}
	result := runtimes.NewResult([]runtimes.Runtime{runtime}, host.Now(), 5*time.Minute)
	if err := result.Write(filepath.Join(n.root, runtimes.ResultPath), host.Now()); err != nil {
		t.Fatal(err)
	}
	return n, []string{
		"--plugin-dir", "/kubelet", "--pod-resources=/pods.sock", "--nfd", "/features.d/lpuctl", "--on-cdi-off", "fail", "--numa", "auto",
		"--pre-start-check",
	}
}

// TestScrapes scrapes a serve with everything on, 16 LPUs and 100 pods. The log says how long the scrapes take, and so does `make bench`.
func TestScrapes(t *testing.T) {
	node, args := everythingOn(t, 16)
	s := node.servesMetrics(args...)
	s.eventually("/readyz", 200, "registered")
	for _, sample := range []string{
		`pod="pod15",container="main"} 1`, `lpuctl_runtime_cdi{answer="on"} 1`, "lpuctl_nfd_file_written_timestamp_seconds 1",
	} {
		s.eventually("/metrics", 200, sample)
	}
	var took []time.Duration
	n := long.Rounds(t, 100)
	for range n {
		start := time.Now()
		code, text := s.get("/metrics")
		took = append(took, time.Since(start))
		if code != 200 || !strings.Contains(text, "\nlpuctl_registered 1\n") {
			t.Fatalf("%d\n%s", code, text)
		}
	}
	slices.Sort(took)
	t.Logf("%d scrapes: half within %v, 99 of 100 within %v, all within %v", n, took[n/2], took[n*99/100], took[n-1])
}
