package guest

import (
	"bufio"
	"context"
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

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Node is the virtual machine with a running `lpuctl serve` and a kubelet. What happens on it is logged, with the time since the last
// fault in milliseconds.
type Node struct {
	// Limits, anew for each fault. Event is how long it may take from an event of the kernel until the kubelet is told; Polled the same
	// for what makes no event; Back for an LPU that is well again, which must be so for 3 s; Dead for a card that answers nothing.
	Event, Polled, Back, Dead time.Duration
	// Written is how long it may take from an event until the spec is right: it is made of one more scan, and synced to the disk.
	Written time.Duration
	// Command is how long a command may take whatever a card does: its deadline for a card, 100 ms, and what it needs anyhow.
	Command time.Duration

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

// The defaults of lpuctl on which the bounds depend.
const (
	period     = 1200 * time.Millisecond // a second, but for a look that began up to a fifth of it before: then it is the next second
	resetGrace = 5 * time.Second
	recovery   = 3 * time.Second // so long a card must be well
	slots      = 8
	writing    = 150 * time.Millisecond // making, writing and syncing a spec takes the guest about 100 ms
)

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
	t.Cleanup(func() { n.EndServe(time.Minute) })
	n.serveWell()
	n.warmUp()
	n.setLimits()
	return n
}

// serveWell starts serve and waits until it tells of LPUs, all of them healthy.
func (n *Node) serveWell() {
	n.mu.Lock()
	n.kubelet.health = nil
	n.mu.Unlock()
	n.Serve()
	n.Until("the kubelet is told of healthy LPUs", 30*time.Second, func() bool { return n.countHealthy() == slots })
}

// warmUp lets a serve see one change after the boot, and starts another: QEMU takes long for what it runs for the first time.
func (n *Node) warmUp() {
	const warm = "/tmp/warm"
	if exists(warm) {
		return
	}
	c := n.Card(slots / 2)
	n.Fault("a driver is unbound and bound, to warm up", func() error {
		err := n.Unbind(c)
		n.Until("the kubelet is told", 10*time.Second, func() bool { return n.countHealthy() < slots })
		return errors.Join(err, n.Bind(c))
	})
	n.Until("the kubelet is told", 10*time.Second, func() bool { return n.countHealthy() == slots })
	n.Must(os.WriteFile(warm, nil, 0o600))
	n.EndServe(time.Minute)
	n.serveWell()
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

// setLimits measures a scan, because a guest of which the host takes the processor away needs longer, and so does one whose processors
// take turns.
func (n *Node) setLimits() {
	uses := []string{"class:lpu", "class:uio"}
	models := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{ // those of config.yaml
		{Name: "vm-u55c", Match: []discovery.Match{{Vendor: "10ee", Device: "505d"}}, Nodes: uses, Drivers: []string{n.driver},
			Management: &discovery.ManagementMatch{Device: "505c"}, Health: "xocl"},
		{Name: "vm-e1000e", Match: []discovery.Match{{Vendor: "8086", Device: "10d3"}}, Nodes: uses, Drivers: []string{n.driver}},
	})
	start := time.Now()
	_, err := discovery.Scan(context.Background(), "/", discovery.Options{Models: models})
	n.Must(err)
	scan := time.Since(start)
	if scan >= time.Second && n.Event > 0 { // a card hangs, which must not cost the others anything
		return
	}
	n.Event = max(400*time.Millisecond, 4*scan)
	n.Written = n.Event + 2*scan + writing
	n.Polled = n.Event + period
	n.Back = n.Polled + recovery + period // good readings are seen each period
	n.Dead = n.Event + resetGrace + period
	n.Command = 2*scan + time.Second + 100*time.Millisecond
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

// EndServe sends SIGTERM to serve, which has to end in time.
func (n *Node) EndServe(limit time.Duration) {
	n.t.Helper()
	start := time.Now()
	_ = n.serve.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.ended:
		n.say("serve ended %d ms after SIGTERM", time.Since(start).Milliseconds())
	case <-time.After(limit):
		n.t.Errorf("serve has not ended %s after SIGTERM", limit)
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

// within waits until something holds.
func (n *Node) within(limit time.Duration, holds func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
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
