package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serving is a serve that runs as a process, and answers at a URL.
type serving struct {
	*testing.T
	command *exec.Cmd
	url     string
	log     string // a file
}

// servesMetrics starts a serve that has the kubelet of the directory kubelet below the root.
func (n *observedNode) servesMetrics(args ...string) *serving {
	n.Helper()
	address := freeAddress(n.T)
	s := &serving{T: n.T, url: "http://" + address, log: filepath.Join(n.TempDir(), "log")}
	log, err := os.Create(s.log)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.command = n.lpuctl(append([]string{"serve", "--listen", address, "--plugin-dir", "/kubelet"}, args...)...)
	s.command.Stderr = log
	if err := s.command.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { kill(s.command) })
	return s
}

// get asks for a page. The code is 0 while nobody listens.
func (s *serving) get(page string) (code int, body string) {
	answer, err := http.Get(s.url + page)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode, bodyOf(s.T, answer)
}

// eventually waits until a page has a code and a text.
func (s *serving) eventually(limit time.Duration, page string, code int, text string) {
	s.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got, body := s.get(page)
		took := time.Since(start)
		if got == code && strings.Contains(body, text) && took < limit {
			return
		}
		if took > limit {
			log, _ := os.ReadFile(s.log)
			s.Fatalf("%s is not %d with %q after %v: %d\n%s\n%s", page, code, text, took, got, body, log)
		}
	}
}

// TestServeSaysItsPhase: /readyz tells whether serve is registered, or for whom it stands by; without a kubelet it is not ready, and says
// why. Whatever the kubelet does, it is alive.
func TestServeSaysItsPhase(t *testing.T) {
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	first := n.servesMetrics()
	first.eventually(20*time.Second, "/readyz", 200, "registered\n")
	second := n.servesMetrics()
	second.eventually(20*time.Second, "/readyz", 200, "standing by: another instance serves until it ends\n")
	second.eventually(time.Second, "/healthz", 200, "ok\n")
	kill(first.command)
	second.eventually(20*time.Second, "/readyz", 200, "registered\n")
	if err := os.Remove(filepath.Join(n.root, "kubelet/kubelet.sock")); err != nil {
		t.Fatal(err)
	}
	kill(second.command)
	third := n.servesMetrics()
	third.eventually(20*time.Second, "/readyz", 503, "waiting for the kubelet\n")
	third.eventually(time.Second, "/healthz", 200, "ok\n")
}
