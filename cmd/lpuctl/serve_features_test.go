package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestNetworkOfTheNode: the labels of the entry that matches the name, which is --node-name or else the host name; none, and an error
// with both places, if two match.
func TestNetworkOfTheNode(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	text := "topology:\n- nodes: [a*]\n  labels: {rack: r1}\n- nodes: [\"*z\"]\n  labels: {rack: r2}\n" +
		"- nodes: [\"" + strings.ToLower(hostname) + "\"]\n  labels: {rack: r3}\n"
	config, findings := cli.ParseConfig("config.yaml", []byte(text))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	a := &app{App: cli.App{Config: config}}
	for name, want := range map[string]string{"a": "r1", "bz": "r2", "": "r3", "other": ""} {
		a.NodeName = name
		labels, entry, err := a.network()
		if labels["topology.hyperaccel.ai/rack"] != want || err != nil || (entry == "") != (want == "") {
			t.Errorf("%s: %v %s %v", name, labels, entry, err)
		}
	}
	a.NodeName = "az"
	if _, _, err := a.network(); err == nil || err.Error() !=
		"topology: two entries match node az (by --node-name): those of config.yaml:2 and config.yaml:4" {
		t.Errorf("%v", err)
	}
}

// TestServeKeepsTheFeatureFile runs serve on a simulated node: the file is there, follows a lost card within five seconds, follows the
// config file, stays as it is when that has two entries for the node, and stays behind.
func TestServeKeepsTheFeatureFile(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	m, err := simulate.Node{Profile: "orion"}.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"kubelet", "features.d", "etc/lpuctl"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, cli.DefaultConfigFile), []byte("topology:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("- {nodes: [\"node-a*\"], labels: {switch: leaf-1}}\n")
	listen := freeAddress(t)
	serve := exec.Command("lpuctl", "--root", root, "serve", "--plugin-dir", "/kubelet", "--listen", listen, "--nfd", "/features.d/lpuctl")
	serve.Env = append(os.Environ(), "LPUCTL_NODE_NAME=node-a7")
	logFile := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	serve.Stderr = log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill() })
	file := filepath.Join(root, "features.d/lpuctl")
	wait := func(what, name, text string) {
		t.Helper()
		await.Until(t, what, func() error {
			data, _ := os.ReadFile(name)
			if strings.Contains(string(data), text) {
				return nil
			}
			said, _ := os.ReadFile(logFile)
			return fmt.Errorf("no %q:\n%s\n%s", text, data, said)
		})
	}
	wait("at the start", file, "topology.hyperaccel.ai/switch=leaf-1\n")
	wait("at the start", file, "\nhyperaccel.ai/lpu.count=8\n")
	wait("at the start", file, "\nhyperaccel.ai/lpu.ring.sizes=8\n")
	wait("the log", logFile, "the feature file is in place") // it is synced before it is written down
	await.Until(t, "the metrics say so", func() error {
		if _, metrics := getPage("http://" + listen + "/metrics"); !strings.Contains(metrics, "\nlpuctl_nfd_file_written_timestamp_seconds 1") {
			return errors.New(metrics)
		}
		return nil
	})
	if err := m.Unplug(3); err != nil {
		t.Fatal(err)
	}
	wait("a lost card", file, "\nhyperaccel.ai/lpu.count=7\n")
	wait("a lost card", file, "\nhyperaccel.ai/lpu.ring.sizes=7\n")

	configure("- {nodes: [\"node-a*\"], labels: {switch: leaf-2}}\n- {nodes: [\"*7\"], labels: {switch: leaf-3}}\n")
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait("two entries", logFile, "two entries match node node-a7 (by --node-name)")
	wait("two entries", file, "switch=leaf-1\n")
	configure("- {nodes: [\"node-a*\"], labels: {switch: leaf-2}}\n")
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait("another switch", file, "switch=leaf-2\n")
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Error(err)
	}
	wait("after the end", file, "\nhyperaccel.ai/lpu.count=7\n")
	if left, _ := filepath.Glob(filepath.Join(root, "features.d/.*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// freeAddress is an address at which nobody listens. Its port is below those that the
// kernel gives out itself, so that no other program gets it in the meantime.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(12000))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
}
