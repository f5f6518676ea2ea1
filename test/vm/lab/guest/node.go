package guest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
)

// Node is the virtual machine with a running `lpuctl serve` and a kubelet. What happens on it is logged, with the time since the last
// fault in milliseconds.
type Node struct {
	t       *testing.T
	driver  string
	host    host
	running sync.WaitGroup // goroutines that log
	serve   *exec.Cmd

	namespaces uintptr // for serve

	ended chan struct{} // closed when serve has ended

	mu      sync.Mutex
	fault   time.Time // when the last fault happened
	kubelet kubelet
	specs   []spec
	uevents []uevent
	logged  []string // by serve
}

type uevent struct {
	at        time.Time
	header    string // ACTION@DEVPATH
	variables []string
}

const slots = 8

// Open is the machine without serve. Its LPUs are all under a driver and well.
func Open(t *testing.T, driver string) *Node {
	t.Helper()
	n := &Node{t: t, driver: driver, fault: time.Now()}
	n.kubelet.node = n
	t.Cleanup(n.running.Wait)
	var err error
	n.host, err = openHost()
	n.Must(err)
	t.Cleanup(func() { _ = n.host.file.Close() })
	stop, err := listen(n.uevent)
	n.Must(err)
	t.Cleanup(stop)
	n.repair()
	return n
}

// Start starts serve on the machine, as on one that has just booted. At the end of the test serve is ended.
func Start(t *testing.T, driver string) *Node { return StartIn(t, driver, 0) }

// StartIn does so with serve in namespaces of its own (CLONE_NEWNET, ...) and, if there are some, without capabilities in that of the
// machine. A new user namespace has the same users.
func StartIn(t *testing.T, driver string, namespaces uintptr) *Node {
	t.Helper()
	n := Open(t, driver)
	n.namespaces = namespaces
	n.forget()
	stop, err := n.kubelet.start()
	n.Must(err)
	t.Cleanup(stop)
	end := make(chan struct{})
	n.running.Go(func() { n.watchSpec(end) })
	t.Cleanup(func() { close(end) })
	t.Cleanup(n.EndServe)
	n.Serve()
	n.Until("the kubelet is told of healthy LPUs", func() bool { return n.countHealthy() == slots })
	return n
}

// try logs an error, which the test need not mind.
func (n *Node) try(err error) {
	if err != nil && !errors.Is(err, os.ErrExist) {
		n.say("%v", err)
	}
}

// forget removes what an earlier serve has left.
func (n *Node) forget() {
	for _, dir := range []string{"/run/cdi", "/run/lpuctl", "/var/lib/lpuctl", pluginDir} {
		names, _ := os.ReadDir(dir)
		for _, name := range names {
			n.try(os.RemoveAll(filepath.Join(dir, name.Name())))
		}
	}
}

// Serve starts serve.
func (n *Node) Serve() {
	n.t.Helper()
	n.serve = exec.Command("lpuctl", "serve", "--listen", "", "--log-format", "text")
	stderr, err := n.serve.StderrPipe()
	n.Must(err)
	n.Must(n.startServe())
	n.ended = make(chan struct{})
	n.running.Go(func() {
		defer close(n.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			_, text, _ := strings.Cut(lines.Text(), "level=")
			n.say("serve: %s", text)
			n.mu.Lock()
			n.logged = append(n.logged, text)
			n.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, stderr)
		n.try(n.serve.Wait())
	})
}

// startServe starts the process from a thread without capabilities, if it is to be in namespaces of its own.
func (n *Node) startServe() error {
	if n.namespaces == 0 {
		return n.serve.Start()
	}
	n.serve.SysProcAttr = &syscall.SysProcAttr{Cloneflags: n.namespaces}
	if n.namespaces&unix.CLONE_NEWUSER != 0 {
		all := []syscall.SysProcIDMap{{Size: 1 << 16}}
		n.serve.SysProcAttr.UidMappings, n.serve.SysProcAttr.GidMappings = all, all
		return n.serve.Start()
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
			// The thread keeps it, to make namespaces. A program that is started does not get it.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				started <- err
				return
			}
		}
		started <- n.serve.Start()
	}()
	return <-started
}

// ServeStatus is what the kernel says of the process.
func (n *Node) ServeStatus() string { return Read(fmt.Sprintf("/proc/%d/status", n.serve.Process.Pid)) }

// EndServe sends SIGTERM to serve, and waits for its end.
func (n *Node) EndServe() {
	n.t.Helper()
	start := time.Now()
	_ = n.serve.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.ended:
		n.say("serve ended %d ms after SIGTERM", time.Since(start).Milliseconds())
	case <-time.After(await.Limit):
		n.t.Errorf("serve has not ended %s after SIGTERM", await.Limit)
		_ = n.serve.Process.Kill()
		<-n.ended
	}
}

func (n *Node) countHealthy() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, health := range n.kubelet.health {
		if health == Healthy {
			count++
		}
	}
	return count
}

func (n *Node) mark(fault time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = fault
}

func (n *Node) uevent(header string, variables []string) {
	n.mu.Lock()
	n.uevents = append(n.uevents, uevent{time.Now(), header, slices.Clone(variables)})
	starting := n.kubelet.lists == 0
	n.mu.Unlock()
	if starting {
		return
	}
	n.say("uevent: %s", strings.Join(append([]string{header}, slices.DeleteFunc(variables, func(v string) bool {
		return !strings.HasPrefix(v, "ERROR_EVENT=") && !strings.HasPrefix(v, "DEVNAME=") && !strings.HasPrefix(v, "DRIVER=")
	})...), " "))
}

func (n *Node) say(format string, args ...any) {
	n.t.Helper()
	n.mu.Lock()
	since := time.Since(n.fault)
	n.mu.Unlock()
	n.t.Logf("%+7d ms %s", since.Milliseconds(), fmt.Sprintf(format, args...))
}

// Must ends the test if there is an error.
func (n *Node) Must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}
