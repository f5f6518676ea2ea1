package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	hanging := []string{"0000:43:00.1/dev_offline", "0000:44:00.1/hwmon/hwmon5/temp1_input", "0000:45:00.1/config"}
	for n := range len(hanging) + 1 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			release := make(chan struct{})
			here := hang(b, root, release, hanging[:n]...)
			b.Cleanup(func() { close(release) })
			for b.Loop() {
				if out, err := exec.Command(lpuctl, "--root", here, "list").CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
