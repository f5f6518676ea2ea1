package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// together runs a command so many times at once, and returns what each said and how long all took.
func together(t *testing.T, times int, command ...string) (results []machine.Result, took time.Duration) {
	t.Helper()
	results = make([]machine.Result, times)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = machine.Run(t, command...) })
	}
	wg.Wait()
	return results, time.Since(start)
}

// TestManyRefreshesWithACardThatHangs: 64 at once need not scan one after the other, and each tells what one alone tells.
func TestManyRefreshesWithACardThatHangs(t *testing.T) {
	need(t, machine.FUSE)
	for name, c := range map[string]struct {
		file    string
		clashes bool // another file defines an LPU too, so that each refresh fails
	}{
		"numa_node": {file: "/numa_node"}, "vendor": {file: "/vendor"}, "driver": {file: "/xmc.u."},
		"failing": {"/numa_node", true},
	} {
		t.Run(name, func(t *testing.T) {
			root := simulate(t)
			hangs := cardAddress + c.file
			if c.clashes {
				other := `{"cdiVersion": "0.3.0", "kind": "hyperaccel.ai/lpu",
					"devices": [{"name": "lpu0", "containerEdits": {"env": ["A=b"]}}]}`
				dir := filepath.Join(root, "var/run/cdi")
				if err := cmp.Or(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "other.json"), []byte(other), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if name == "driver" {
				serial, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", hangs+"*/serial_num"))
				if err != nil || len(serial) != 1 {
					t.Fatal(serial, err)
				}
				hangs = filepath.Base(filepath.Dir(serial[0])) + "/serial_num"
			}
			here := hang(t, root, nil, hangs)
			refresh := []string{machine.Binary(t), "--root", here, "cdi", "refresh"}
			alone := machine.Run(t, refresh...)
			spec := filepath.Join(root, "var/run/cdi", specName)
			want := read(t, spec)
			if err := os.Remove(spec); err != nil {
				t.Fatal(err)
			}
			const times = 64
			results, took := together(t, times, refresh...)
			shared := 0
			for i, r := range results {
				said := strings.ReplaceAll(r.Stderr+r.Stdout, " (by another lpuctl, at the same time)", "")
				if said != r.Stderr+r.Stdout {
					shared++
				}
				if diff := gocmp.Diff(alone.Stderr+alone.Stdout, said); diff != "" || r.Code != alone.Code {
					t.Fatalf("refresh %d: exit code %d, want %d:\n%s", i, r.Code, alone.Code, diff)
				}
			}
			t.Logf("%v; %d took the result of another one", took, shared)
			if shared < times/2 {
				t.Errorf("only %d of %d took the result of another one", shared, times)
			}
			if diff := gocmp.Diff(string(want), string(read(t, spec))); diff != "" {
				t.Errorf("the spec:\n%s", diff)
			}
		})
	}
}

// strangerIn names, for a process of an ordinary user, what it may try to get in the way of.
const strangerIn = "STRANGER_IN"

// stranger opens whatever it may below some directories, locks it in every way, watches it, and connects to an address without ever
// saying anything. It goes on until it is killed.
func stranger(dirs []string, address string) {
	watch, _ := unix.InotifyInit1(0)
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096})
	var silent []net.Conn // never closed: the process is killed
	for range 200 {
		if conn, err := net.Dial("tcp", address); err == nil {
			silent = append(silent, conn)
		}
	}
	defer runtime.KeepAlive(silent)
	held := map[string]bool{}
	for round := 0; ; round++ {
		for _, dir := range dirs {
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				info, statErr := os.Lstat(path)
				if err != nil || statErr != nil {
					return nil
				}
				key := fmt.Sprint(path, info.Sys().(*syscall.Stat_t).Ino)
				if !held[key] {
					held[key] = true
					hold(path, d, watch)
				}
				return nil
			})
		}
		if round == 0 {
			fmt.Println("holds", len(held))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// hold keeps a file open in every way that it may be opened, and locks it in every way.
func hold(path string, d fs.DirEntry, watch int) {
	_, _ = unix.InotifyAddWatch(watch, path, unix.IN_ALL_EVENTS)
	if d.Type()&fs.ModeSocket != 0 {
		_, _ = net.Dial("unix", path)
		return
	}
	for _, how := range []int{unix.O_RDONLY, unix.O_WRONLY | unix.O_NONBLOCK, unix.O_RDWR | unix.O_NONBLOCK} {
		fd, err := unix.Open(path, how|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		for _, kind := range []int16{unix.F_RDLCK, unix.F_WRLCK} {
			_ = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind})
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, int(kind))
		}
		_, _ = unix.Mmap(fd, 0, 1, unix.PROT_READ, unix.MAP_SHARED)
	}
}

// TestAStrangerDelaysNothing: what any user may open, lock, watch and connect to stops neither a refresh, nor its removal, nor serve.
func TestAStrangerDelaysNothing(t *testing.T) {
	need(t)
	const root = "/opt/node" // where every user can go
	machine.Lpuctl(t, "--quiet", "simulate", root)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	plugins := filepath.Join(root, "/var/lib/kubelet/device-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	machine.Write(t, filepath.Join(root, "etc/lpuctl/config.yaml"), "")
	const address = "127.0.0.1:9477"
	lpuctl := func(args ...string) time.Duration {
		t.Helper()
		start := time.Now()
		machine.Lpuctl(t, append([]string{"--root", root}, args...)...)
		return time.Since(start)
	}
	unit := read(t, "../../systemd/lpuctl-cdi-refresh.service")
	_, command, found := bytes.Cut(unit, []byte("\nExecStart=/usr/bin/lpuctl "))
	line, _, _ := strings.Cut(string(command), "\n")
	if !found {
		t.Fatal("the boot unit does not say what it runs")
	}
	boot := strings.Fields(line)
	before := lpuctl(boot...)
	serve := machine.Start(t, machine.Binary(t), "--root", root, "serve", "--listen", address, "--interval", "200ms")
	t.Cleanup(func() { serve.Stop(unix.SIGTERM) })
	ask := func() string {
		answer, err := (&http.Client{Timeout: 3 * time.Second}).Get("http://" + address + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	const calm = "waiting for the kubelet\n" // there is none
	calmly := func(when string) {
		t.Helper()
		await.Until(t, when, func() error {
			if said := ask(); said != calm {
				return fmt.Errorf("%q", said)
			}
			return nil
		})
	}
	calmly("serve is up")

	other := exec.Command("/proc/self/exe")
	dirs := strings.Join([]string{root + "/var", root + "/etc", root + "/opt", "/run"}, ":")
	other.Env = append(os.Environ(), strangerIn+"="+dirs+","+address)
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	out, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	var count int
	if n, err := fmt.Fscanf(out, "holds %d\n", &count); n != 1 || count < 10 {
		t.Fatalf("the stranger holds %d files: %v", count, err)
	}
	spec := filepath.Join(root, "var/run/cdi", specName)
	for range 3 {
		for _, args := range [][]string{boot, {"cdi", "refresh"}, {"cdi", "remove"}} {
			t.Logf("%v took %v, and %v before", args, lpuctl(args...), before)
		}
		lpuctl(boot...)
	}
	text := read(t, spec)
	machine.Write(t, spec, strings.ReplaceAll(string(text), "renderD129", "renderD130")) // another LPU's node, which is never left in place
	await.Until(t, "serve corrects the spec", func() error {
		if now, err := os.ReadFile(spec); err != nil || !bytes.Equal(now, text) {
			return fmt.Errorf("it is not corrected (%w)", err)
		}
		return nil
	})
	calmly("with the stranger")
	if said := serve.Said(10000); strings.Contains(said, "holds the lock") || strings.Contains(said, "level=ERROR") {
		t.Errorf("serve said\n%s", said)
	}
}

// openTree serves a tree through FUSE as a file system without modes does: everybody may open every file.
type openTree struct{ *fusefs.LoopbackNode }

func (n *openTree) WrapChild(_ context.Context, child fusefs.InodeEmbedder) fusefs.InodeEmbedder {
	return &openTree{child.(*fusefs.LoopbackNode)}
}

func (n *openTree) Getattr(ctx context.Context, f fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Getattr(ctx, f, out)
	out.Mode |= 0o777
	return errno
}

// TestAFileSystemWithoutModes: where a lock file cannot be root's alone, a refresh ends and says so.
func TestAFileSystemWithoutModes(t *testing.T) {
	need(t, machine.FUSE)
	root, dir := simulate(t), t.TempDir()
	loopback, err := fusefs.NewLoopbackRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	options := fuse.MountOptions{DirectMountStrict: true}
	if _, err := fusefs.Mount(dir, &openTree{loopback.(*fusefs.LoopbackNode)}, &fusefs.Options{MountOptions: options}); err != nil {
		t.Fatalf("mounting FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	machine.BindMount(t, dir, filepath.Join(root, "var/run/cdi"))
	r := bounded(t, machine.Binary(t), "--root", root, "cdi", "refresh")
	if r.Code != 1 || !strings.Contains(r.Stderr, "others can open it") {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
}
