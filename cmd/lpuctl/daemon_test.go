package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestDaemonsTellSystemd: that they have started, once, that they live, and that they end.
func TestDaemonsTellSystemd(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2}).Write(root); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"serve":    {"serve", "--plugin-dir", "/", "--listen", "", "--interval", "100ms"},
		"exporter": {"exporter", "--listen", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "notify")
			systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = systemd.Close() }()
			if err := systemd.SetReadDeadline(time.Now().Add(await.Limit)); err != nil {
				t.Fatal(err)
			}
			command := exec.Command("lpuctl", append([]string{"--root", root, "--log-level", "error"}, args...)...)
			command.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
			command.Stderr = t.Output()
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = command.Process.Kill() })
			told := map[string]int{}
			for text := make([]byte, 100); told["STOPPING=1"] == 0; {
				n, err := systemd.Read(text)
				if err != nil {
					t.Fatalf("%v after %v", err, told)
				}
				said := string(text[:n])
				told[said]++
				if said == "WATCHDOG=1" && told[said] == 2 { // once: a second signal would end it at once
					if err := command.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := command.Wait(); err != nil || told["READY=1"] != 1 {
				t.Errorf("%v, told %v", err, told)
			}
		})
	}
}
