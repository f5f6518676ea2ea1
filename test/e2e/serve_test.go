package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeWithACardThatHangs: scans come again and again, and the card that hangs costs one thread, not one for each.
func TestServeWithACardThatHangs(t *testing.T) {
	need(t, fuseDevice)
	root := simulate(t)
	serial, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", cardAddress, "xmc.u.*/serial_num"))
	if err != nil || len(serial) != 1 {
		t.Fatal(serial, err)
	}
	here := hang(t, root, filepath.Base(filepath.Dir(serial[0]))+"/serial_num")
	cmd := exec.Command(binary(t), "--root", here, "serve", "--interval", "100ms", "--listen", "")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	time.Sleep(4 * time.Second)
	before := status(t, cmd.Process.Pid, "Threads:")
	time.Sleep(6 * time.Second)
	if after := status(t, cmd.Process.Pid, "Threads:"); after > before+3 {
		t.Errorf("%d threads became %d: each scan leaves one behind", before, after)
	}
	const most = 30 << 10 // KiB
	if rss := status(t, cmd.Process.Pid, "VmRSS:"); rss > most {
		t.Errorf("it takes %d KiB of memory", rss)
	} else {
		t.Logf("%d threads, %d KiB resident", before, rss)
	}
	if spec, err := os.ReadFile(filepath.Join(root, "var/run/cdi/hyperaccel.ai-lpu.json")); err != nil || !strings.Contains(string(spec), `"pci-0000-43-00.1"`) {
		t.Errorf("the other cards have no spec: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v:\n%s", err, log.String())
		}
	case <-time.After(5 * time.Second):
		t.Error("SIGTERM does not end it")
	}
}

// status is a number of /proc/PID/status.
func status(t *testing.T, pid int, field string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_, after, found := strings.Cut(string(data), field)
	if _, err := fmt.Sscan(after, &n); !found || err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return n
}
