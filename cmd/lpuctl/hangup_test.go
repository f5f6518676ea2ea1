package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/killer"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestHangUpAtTheStart: SIGHUP that comes before anything of the node is read does not end serve, which takes it as a reload, and ends any
// other command. Here serve ends by itself, because of its config file.
func TestHangUpAtTheStart(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGHUP) // who starts the tests may ignore it, as nohup does, and the program then does so too
	defer signal.Stop(heard)
	root := plant.Tree(t, map[string]string{"sys/bus/pci/devices": "dir", "etc/lpuctl/config.yaml": "nonsense: true\n"})
	lpuctl, err := exec.LookPath("lpuctl")
	if err != nil {
		t.Fatal(err)
	}
	for command, heeds := range map[string]bool{"serve": true, "list": false} {
		step, err := "", error(nil)
		for try := 0; step == "" && try < 10; try++ { // the tracer sometimes misses when the first call names the directory
			at := &killer.Killer{Dir: filepath.Join(root, "etc"), Left: 1, Signal: unix.SIGHUP}
			if step, err = at.Run(lpuctl, "--root", root, command); errors.Is(err, os.ErrPermission) {
				t.Skip("needs ptrace(2): ", err)
			}
		}
		exited := err != nil && strings.HasSuffix(err.Error(), "exit code 1")
		if step == "" || exited != heeds || err != nil && !exited {
			t.Errorf("%s: SIGHUP before %q, and then %v", command, step, err)
		}
	}
}
