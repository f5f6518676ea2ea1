package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkCardsThatHang is how long list takes while reads of cards do not end. It may take one
// deadline of a card (1 s) and 100 ms, however many hang and whatever is asked of them.
func BenchmarkCardsThatHang(b *testing.B) {
	lpuctl := os.Getenv("LPUCTL")
	root := filepath.Join(b.TempDir(), "node")
	if out, err := exec.Command(lpuctl, "simulate", root).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	hanging := []string{"0000:43:00.1/dev_offline", "0000:44:00.1/hwmon/hwmon*/temp1_input", "0000:45:00.1/config"}
	for i, file := range hanging {
		devices := filepath.Join(root, "sys/bus/pci/devices")
		found, err := filepath.Glob(filepath.Join(devices, file))
		if err != nil || len(found) != 1 {
			b.Fatal(found, err)
		}
		hanging[i] = strings.TrimPrefix(found[0], devices+"/")
	}
	for n := range len(hanging) + 1 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			release := make(chan struct{})
			here := hang(b, root, release, hanging[:n]...)
			b.Cleanup(func() { close(release) })
			for b.Loop() {
				out, err := exec.Command(lpuctl, "--root", here, "list", "-o", "json").CombinedOutput()
				if hang := strings.Count(string(out), `"id": "read-stalled"`); err != nil || hang != n {
					b.Fatalf("%d hang, not %d, %v: %s", hang, n, err, out)
				}
			}
		})
	}
}
