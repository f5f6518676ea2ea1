package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/uevent"
)

// listenerIn marks a process that listens for uevents.
const listenerIn = "UEVENT_LISTENER"

// changed is a device of every machine, and what tells that it is /dev/null.
const (
	changed = "/sys/class/mem/null/uevent"
	heard   = "/devices/virtual/mem/null"
)

// listenForUevents prints "listening", each event of changed, and when its input ends how many events it has received.
func listenForUevents() {
	ctx, cancel := context.WithCancel(context.Background())
	l, err := uevent.Listen(ctx, func(devPath, _ []byte) bool { return string(devPath) == heard })
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for e := range l.Events() {
		fmt.Println(e.Action, e.DevPath, e.Synthetic)
	}
	fmt.Println("received", l.Counts().Received > 0)
	os.Exit(0)
}

// TestUevents: without any capability they arrive in each network namespace of the initial user namespace. In that of another user
// namespace they do not, and nothing else tells that.
func TestUevents(t *testing.T) {
	need(t, "setpriv")
	self, err := os.Open("/proc/self/exe") // its path may lead nowhere in these namespaces
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	identity := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
	inUserNamespace := func(also uintptr) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | also, UidMappings: identity, GidMappings: identity}
	}
	type listener struct {
		name    string
		hears   bool
		command []string
		attr    *syscall.SysProcAttr
		stdin   io.Closer
		stdout  *bufio.Reader
		cmd     *exec.Cmd
	}
	// The one that hears nothing is asked last, when all others have heard.
	listeners := []*listener{
		{name: "another user namespace alone", hears: true, command: []string{"/proc/self/exe"}, attr: inUserNamespace(0)},
		{name: "root without capabilities", hears: true,
			command: []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "/proc/self/fd/3"}},
		{name: "nobody", hears: true, command: []string{"/proc/self/exe"},
			attr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}},
		{name: "another user and network namespace", command: []string{"/proc/self/exe"}, attr: inUserNamespace(syscall.CLONE_NEWNET)},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one that hears nothing does not end by itself
	defer cancel()
	for _, l := range listeners {
		l.cmd = exec.CommandContext(ctx, l.command[0], l.command[1:]...)
		l.cmd.Env = append(os.Environ(), listenerIn+"=1")
		l.cmd.SysProcAttr = l.attr
		l.cmd.ExtraFiles = []*os.File{self}
		l.cmd.Stderr = os.Stderr
		stdin, errIn := l.cmd.StdinPipe()
		stdout, errOut := l.cmd.StdoutPipe()
		if errIn != nil || errOut != nil {
			t.Fatal(errIn, errOut)
		}
		if err := l.cmd.Start(); err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		l.stdin, l.stdout = stdin, bufio.NewReader(stdout)
		if line, err := l.stdout.ReadString('\n'); line != "listening\n" {
			t.Fatalf("%s: %q, %v", l.name, line, err)
		}
	}
	if err := os.WriteFile(changed, []byte("change"), 0); err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		if l.hears {
			if line, err := l.stdout.ReadString('\n'); line != "change "+heard+" true\n" {
				t.Errorf("%s: heard %q, %v", l.name, line, err)
			}
		}
		_ = l.stdin.Close()
		rest, err := io.ReadAll(l.stdout)
		if want := fmt.Sprintln("received", l.hears); err != nil || string(rest) != want {
			t.Errorf("%s: says %q, %v; want %q", l.name, strings.TrimSpace(string(rest)), err, want)
		}
		if err := l.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", l.name, err)
		}
	}
}
