//go:build vmlab

package bus

import (
	"os"
	"os/exec"
	"testing"
)

func TestHello(t *testing.T) {
	d, _ := os.ReadDir("/sys/bus/pci/devices")
	t.Log(len(d))
	out, err := exec.Command("lpuctl", "version").CombinedOutput()
	t.Logf("%s %v", out, err)
}
