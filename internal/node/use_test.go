package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// samples are the lines of metrics that are no comments.
func samples(t *testing.T, metrics []*node.Metric) string {
	t.Helper()
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, metrics...); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

func TestUse(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	address := func(text string) pci.Address {
		a, err := pci.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	worker := discovery.User{PID: 3, Command: "worker", UID: 0, Runtime: "podman", Container: id, Started: 5 * time.Second}
	first := discovery.User{PID: 9, Command: "first", UID: 1001, Runtime: "docker", Container: id, Started: 4 * time.Second}
	bare := discovery.User{PID: 4, Command: "bare", UID: -1, Started: 4 * time.Second}
	use := &node.Use{
		ReadAt: time.UnixMilli(1500), LeasesKnown: true,
		Inventory: &discovery.Inventory{LPUs: []discovery.LPU{
			{Name: "lpu0", Address: address("0000:01:00.1"), Use: discovery.Use{Users: []discovery.User{worker, first}},
				Marks: discovery.Marks{Leased: &discovery.Holder{UID: 1001}}},
			{Name: "lpu1", Address: address("0000:02:00.1"), Use: discovery.Use{Users: []discovery.User{first, bare}},
				Marks: discovery.Marks{Reserved: &discovery.Holder{UID: 7}}},
			{Name: "lpu2", Address: address("0000:03:00.1"), Use: discovery.Use{Users: []discovery.User{}}},
			{Name: "lpu3", Address: address("0000:04:00.1"), Use: discovery.Use{UsersHidden: true}},
		}},
	}
	want := `lpuctl_lpu_users{lpu="lpu0",device="pci-0000-01-00.1"} 2
lpuctl_lpu_users{lpu="lpu1",device="pci-0000-02-00.1"} 2
lpuctl_lpu_users{lpu="lpu2",device="pci-0000-03-00.1"} 0
lpuctl_lpu_holder{lpu="lpu0",device="pci-0000-01-00.1",runtime="docker",container="0123456789ab",uid="1001"} 1
lpuctl_lpu_holder{lpu="lpu1",device="pci-0000-02-00.1",runtime="",container="",uid=""} 1
lpuctl_lpu_leased{lpu="lpu0",device="pci-0000-01-00.1",uid="1001"} 1
lpuctl_lpu_reserved{lpu="lpu1",device="pci-0000-02-00.1",uid="7"} 1
lpuctl_leases_known 1
lpuctl_users_hidden 1
lpuctl_last_use_timestamp_seconds 1.5
`
	if got := samples(t, use.Metrics()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := samples(t, (*node.Use)(nil).Metrics()); got != "" {
		t.Errorf("before the first look:\n%s", got)
	}
}

// TestReadOnly: a spec that is only compared is not written, an LPU that it does not define is healthy, and nothing is remembered.
func TestReadOnly(t *testing.T) {
	w := newWorld(t)
	if err := os.Remove(w.file().Path); err != nil {
		t.Fatal(err)
	}
	p, dir := w.program(), t.TempDir()
	judged, past := filepath.Join(dir, "health.json"), time.Unix(1e9, 0) // of a serve that ran before
	w.must(os.WriteFile(judged, []byte("{"), 0o644))
	w.must(os.Chtimes(judged, past, past))
	p.Memory = node.Memory{Dir: dir, ReadOnly: true}
	look := func() string {
		s := p.Update(t.Context(), node.Spec{File: w.file(), ReadOnly: true}, p.watcher.Scan)
		if s == nil {
			t.Fatal("no snapshot")
		}
		return unhealthy(s)
	}
	for _, step := range []struct {
		what                      string
		do                        func()
		missing, stale, unhealthy int
	}{
		{"no spec", func() {}, 18, 0, 0},
		{"a refresh", w.refresh, 0, 0, 0},
		{"a driver is unbound", func() { w.must(w.machine.Unbind(1)) }, 0, 9, 1},
		{"another refresh", w.refresh, 0, 0, 1},
	} {
		step.do()
		w.now = w.now.Add(time.Second)
		if got := strings.Fields(look()); len(got) != step.unhealthy {
			t.Errorf("%s: unhealthy are %v", step.what, got)
		}
		drift := func(differs string) int {
			n, err := strconv.Atoi(p.metric(`lpuctl_spec_drift{differs="` + differs + `"}`))
			w.must(err)
			return n
		}
		// Only root can make nodes. Where there are none it is not known whether those of the spec are gone.
		missing, stale := drift("missing"), drift("gone")+drift("nodes")
		if missing != step.missing || stale != step.stale {
			t.Errorf("%s: %d are missing, %d have nodes that are no LPU's", step.what, missing, stale)
		}
	}
	if p.writes() != "0" {
		t.Errorf("it wrote the spec %s times", p.writes())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("it wrote %v, %v", files, err)
	}
	if info, err := os.Stat(judged); err != nil || !info.ModTime().Equal(past) || info.Size() != 1 {
		t.Errorf("it wrote %v, %v", info, err)
	}
}
