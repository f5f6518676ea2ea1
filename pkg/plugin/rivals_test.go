package plugin

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

const rivalSocket = "xilinx_u55c_gen3x16_xdma_base_3-0-fpga.sock"

// TestAnotherPluginIsNamed: while Xilinx' plugin serves the same cards, that is a problem of the machine, in the metrics as elsewhere.
func TestAnotherPluginIsNamed(t *testing.T) {
	r, _, i := served(t, rules137)
	labels := []string{"problem", string(finding.OtherPlugin), "severity", string(finding.Warning)}
	r.plugin.Node.Beside = i.server.Rivals
	r.scan()
	if got := i.value("lpuctl_problem", labels...); got != -1 {
		t.Errorf("there is no other plugin, and the metric is %v", got)
	}
	path := filepath.Join(i.server.Dir, rivalSocket)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	next := &i.server.rivals.next
	if left := *next - host.SinceBoot(); left > rivalLook || left < -rivalLook {
		t.Errorf("it looks again in %v", left)
	}
	*next += time.Hour
	r.scan()
	if got := i.value("lpuctl_problem", labels...); got != -1 {
		t.Errorf("it was looked for again at once: %v", got)
	}
	*next = 0
	r.scan()
	if got := i.value("lpuctl_problem", labels...); got != 1 {
		t.Errorf("there is another plugin, and the metric is %v", got)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	*next = 0
	r.scan()
	if got := i.value("lpuctl_problem", labels...); got != -1 {
		t.Errorf("the other plugin has ended, and the metric is %v", got)
	}
}

func TestRivals(t *testing.T) {
	dir := t.TempDir()
	orion := inventoryOf(t, "orion")
	path := filepath.Join(dir, rivalSocket)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	others := &Server{Dir: dir}
	found := others.Rivals(orion)
	if len(found) != 1 || found[0].Subject != rivalSocket {
		t.Fatalf("%v", found)
	}
	if found := (&Server{Dir: dir}).Rivals(inventoryOf(t, "bertha")); len(found) != 0 {
		t.Errorf("the other plugin hands out no such cards: %v", found)
	}
	others.Rivals(orion)
	last, err := net.Dial("unix", path) // those before come first
	if err == nil {
		_, err = last.Write([]byte{1})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = last.Close() }()
	connections := 0
	for n := 0; n == 0; connections++ {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		n, _ = conn.Read(make([]byte, 1)) // nothing from a connection that is closed already
		_ = conn.Close()
	}
	if connections != 2 { // the one that looked, and the last
		t.Errorf("it was connected to %d times", connections-1)
	}
	// It leaves its socket behind when it is killed.
	_ = listener.Close()
	if found := (&Server{Dir: dir}).Rivals(orion); len(found) != 0 {
		t.Errorf("nobody listens: %v", found)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file-fpga.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := (&Server{Dir: dir}).Rivals(orion); len(found) != 0 {
		t.Errorf("a file is no plugin: %v", found)
	}
}

func inventoryOf(t *testing.T, profile string) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: profile, LPUs: 2}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}
