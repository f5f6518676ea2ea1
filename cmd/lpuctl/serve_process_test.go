package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/test/await"
)

// serving is a serve that runs as a process, and answers at a URL.
type serving struct {
	*testing.T
	command *exec.Cmd
	url     string
	log     string // a file
}

// servesMetrics starts a serve that answers.
func (n *observedNode) servesMetrics(args ...string) *serving {
	n.Helper()
	address := freeAddress(n.T)
	s := &serving{T: n.T, url: "http://" + address, log: filepath.Join(n.TempDir(), "log")}
	log, err := os.Create(s.log)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.command = n.lpuctl(append([]string{"serve", "--listen", address}, args...)...)
	s.command.Stderr = log
	if err := s.command.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { kill(s.command) })
	return s
}

// get asks for a page. The code is 0 if no whole answer comes.
func (s *serving) get(page string) (code int, body string) { return getPage(s.url + page) }

// getPage asks for a page. The code is 0 if no whole answer comes, as from a server that is killed.
func getPage(url string) (code int, body string) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(data)
}

// eventually waits until a page has a code and a text.
func (s *serving) eventually(page string, code int, text string) {
	s.Helper()
	await.Until(s, fmt.Sprintf("%s is %d with %q", page, code, text), func() error {
		got, body := s.get(page)
		if got == code && strings.Contains(body, text) {
			return nil
		}
		log, _ := os.ReadFile(s.log)
		return fmt.Errorf("%d\n%s\n%s", got, body, log)
	})
}

// TestServeSaysItsPhase: /readyz tells whether serve is registered, or for whom it stands by; without a kubelet it is not ready, and says
// why. Whatever the kubelet does, it is alive.
func TestServeSaysItsPhase(t *testing.T) {
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	first := n.servesMetrics("--plugin-dir", "/kubelet")
	first.eventually("/readyz", 200, "registered\n")
	second := n.servesMetrics("--plugin-dir", "/kubelet")
	second.eventually("/readyz", 200, "standing by: another instance serves\n")
	second.eventually("/healthz", 200, "ok\n")
	kill(first.command)
	second.eventually("/readyz", 200, "registered\n")
	if err := os.Remove(filepath.Join(n.root, "kubelet/kubelet.sock")); err != nil {
		t.Fatal(err)
	}
	kill(second.command)
	third := n.servesMetrics("--plugin-dir", "/kubelet")
	third.eventually("/readyz", 503, "waiting for the kubelet\n")
	third.eventually("/healthz", 200, "ok\n")
}

// configure writes the config file of the node, and has serve read it.
func (n *observedNode) configure(s *serving, text string) {
	n.Helper()
	n.plant(cli.DefaultConfigFile, text)
	if s != nil {
		if err := s.command.Process.Signal(syscall.SIGHUP); err != nil {
			n.Fatal(err)
		}
	}
}

// TestConfigValid: the metric says whether the config file in place is the one that holds, also at a start at which two entries match the
// node. The feature file stays as it is while that is not known: a start takes no node out of its topology.
func TestConfigValid(t *testing.T) {
	const valid, faulty = "\nlpuctl_config_valid 1\n", "\nlpuctl_config_valid 0\n"
	const one, two = "topology:\n- {nodes: [a*], labels: {switch: leaf-1}}\n", "- {nodes: [\"*z\"], labels: {switch: leaf-2}}\n"
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	if err := os.Mkdir(filepath.Join(n.root, "features.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"--plugin-dir", "/kubelet", "--nfd", "/features.d/lpuctl", "--node-name", "az"}
	file := filepath.Join(n.root, "features.d/lpuctl")
	written := func(label string) string {
		t.Helper()
		await.Until(t, label+" is in the file", func() error {
			data, err := os.ReadFile(file)
			if err == nil && !strings.Contains(string(data), label) {
				err = fmt.Errorf("not in\n%s", data)
			}
			return err
		})
		return host.State(file)
	}
	n.configure(nil, one)
	s := n.servesMetrics(args...)
	s.eventually("/metrics", 200, valid)
	n.configure(s, "serve: {numa: maybe}\n")
	s.eventually("/metrics", 200, faulty)
	n.configure(s, one)
	s.eventually("/metrics", 200, valid)
	state := written("switch=leaf-1\n")
	kill(s.command)

	n.configure(nil, one+two)
	s = n.servesMetrics(args...)
	s.eventually("/readyz", 200, "registered")
	s.eventually("/metrics", 200, faulty)
	time.Sleep(2 * time.Second) // it looks at the machine each second
	if after := host.State(file); after != state {
		t.Errorf("the feature file was %s and is %s", state, after)
	}
	said := func() int { return strings.Count(readText(t, s.log), "two entries match node az") }
	await.For(t, "it is said", func() bool { return said() > 0 })
	if n := said(); n != 1 {
		t.Errorf("said %d times:\n%s", n, readText(t, s.log))
	}
	n.configure(s, "topology:\n"+two)
	s.eventually("/metrics", 200, valid)
	written("switch=leaf-2\n")
}

// TestServeLooksForOthersWhereItServes: another plugin is looked for in the kubelet's directory of now, not in the one of the start.
func TestServeLooksForOthersWhereItServes(t *testing.T) {
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "old"))
	newKubelet(t, filepath.Join(n.root, "new"))
	listener, err := net.Listen("unix", filepath.Join(n.root, "old/xilinx_u55c-0-fpga.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	const other = "lpuctl_problem{problem=\"other-plugin\""
	n.configure(nil, "serve: {pluginDir: /old}\n")
	s := n.servesMetrics()
	s.eventually("/metrics", 200, other)
	n.configure(s, "serve: {pluginDir: /new}\n")
	await.Until(t, "it looks in the new directory", func() error {
		if code, body := s.get("/metrics"); code != 200 || strings.Contains(body, other) {
			return fmt.Errorf("%d\n%s", code, body)
		}
		return nil
	})
}

// TestLostCardIsInTheMetrics: it is healthy no more.
func TestLostCardIsInTheMetrics(t *testing.T) {
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	s := n.servesMetrics("--plugin-dir", "/kubelet")
	sample := fmt.Sprintf("lpuctl_lpu_healthy{lpu=\"lpu3\",device=%q} ", cdi.AddressName(n.machine.Card(3).Address))
	s.eventually("/metrics", 200, sample+"1\n")
	if err := n.machine.Unplug(3); err != nil {
		t.Fatal(err)
	}
	s.eventually("/metrics", 200, sample+"0\n")
}
