package isolate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A test needs processes of its own: the test program runs again as what Start continues with, or to call Exec.
func TestMain(m *testing.M) {
	if err := Continue(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	if script := os.Getenv("ISOLATE_EXEC"); script != "" {
		p := shell(script, os.Getenv("ISOLATE_DEV"), strings.Fields(os.Getenv("ISOLATE_HIDDEN"))...)
		fmt.Fprintln(os.Stderr, p.Exec())
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// shell is a shell script that is isolated from nodes.
func shell(script, dev string, hidden ...string) *Program {
	return &Program{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH"), "GREETING=hello"},
		Isolated: true, Dev: dev, Hidden: hidden, Name: "test",
	}
}

// run runs a script isolated, as this process would run it for its user, and returns what it wrote. Where this machine forbids
// namespaces, the error must say what to do about it; then there is nothing to read.
func run(t *testing.T, script, dev string, hidden ...string) (out string, isolated bool) {
	t.Helper()
	result := filepath.Join(t.TempDir(), "result")
	p := shell("exec >"+result+" 2>&1\n"+script, dev, hidden...)
	pid, err := p.Start()
	code := 125
	if err == nil {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			t.Fatal(err)
		}
		code = status.ExitStatus()
	} else if f, ok := errors.AsType[*Forbidden](err); !ok || f.Remedy == "" {
		t.Fatal(err)
	}
	if code == 125 && !mayIsolate(t) {
		return "", false
	}
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatalf("exit code %d, %v:\n%s", code, err, data)
	}
	if !p.NeedsChild() {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(slices.Clone(p.Env), "ISOLATE_EXEC="+script, "ISOLATE_DEV="+dev, "ISOLATE_HIDDEN="+strings.Join(hidden, " "))
		if same, _ := cmd.CombinedOutput(); !bytes.Equal(same, data) {
			t.Errorf("replaced by the program:\n%sas a child:\n%s", same, data)
		}
	}
	return string(data), true
}

// mayIsolate tells by another program whether this user may mount in namespaces.
func mayIsolate(t *testing.T) bool {
	t.Helper()
	options := "-Um"
	if os.Geteuid() == 0 {
		options = "-m"
	} else {
		options += "r"
	}
	return exec.Command("unshare", options, "mount", "-t", "tmpfs", "none", "/tmp").Run() == nil
}

// tree is a directory of nodes, which are plain files here: dri has three and a directory with links, and beside it is one more.
func tree(t *testing.T) string {
	t.Helper()
	dev := filepath.Join(t.TempDir(), "dev")
	if err := os.MkdirAll(dev+"/dri/by-path", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dri/renderD128", "dri/renderD129", "dri/card0", "lpu0"} {
		if err := os.WriteFile(filepath.Join(dev, name), []byte("this is "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"renderD128", "renderD129"} {
		if err := os.Symlink("../"+name, filepath.Join(dev, "dri/by-path", "pci-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return dev
}

const listing = `cd "$0"; find . ! -type d | sort | while read n; do cat $n 2>/dev/null || echo "$n does not open"; done`

// TestHiddenNodes: a directory below the top is without hidden nodes, has all others, and outside nothing has changed.
func TestHiddenNodes(t *testing.T) {
	dev := tree(t)
	out, isolated := run(t, strings.ReplaceAll(listing, `"$0"`, dev), dev, dev+"/dri/renderD129", dev+"/dri/card0")
	const want = `this is dri/renderD128
./dri/by-path/pci-renderD129 does not open
this is dri/renderD128
this is lpu0
`
	if isolated && out != want {
		t.Errorf("inside:\n%swant:\n%s", out, want)
	}
	if entries, err := os.ReadDir(dev + "/dri"); err != nil || len(entries) != 4 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// TestNodeAtTheTop: a device in /dev itself does not open, and everything else works as before.
func TestNodeAtTheTop(t *testing.T) {
	script := `head -c 3 /dev/full || echo shut
head -c 3 /dev/zero | od -An -tx1
echo x > /dev/null && touch /dev/shm/$$ && rm /dev/shm/$$ && [ -c /dev/full ] && exec 3<> /dev/ptmx && echo fine`
	out, isolated := run(t, script, "/dev", "/dev/full")
	if isolated && (!strings.Contains(out, "shut\n 00 00 00\nfine\n") || !strings.Contains(out, "/dev/full")) {
		t.Errorf("inside:\n%s", out)
	}
}

// TestSameUserInside: ids, directory, variables and arguments are those outside, and an ordinary user has no capability and gets none.
func TestSameUserInside(t *testing.T) {
	dev := tree(t)
	t.Chdir(dev)
	script := `id -u; id -g; pwd -P; echo $GREETING; grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status | tr -d '[:space:]'`
	out, isolated := run(t, script, dev, dev+"/dri/card0")
	wd, err := filepath.EvalSymlinks(dev)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d\n%d\n%s\nhello\n", os.Getuid(), os.Getgid(), wd)
	if isolated && !strings.HasPrefix(out, want) {
		t.Errorf("inside:\n%swant:\n%s", out, want)
	}
	const none = "0000000000000000"
	rights := strings.TrimPrefix(out, want)
	if os.Geteuid() != 0 && isolated && rights != "CapInh:"+none+"CapPrm:"+none+"CapEff:"+none+"CapAmb:"+none+"NoNewPrivs:1" {
		t.Errorf("inside: %s", rights)
	}
}

// TestUserCannotUndo: neither the program nor one that makes itself root of a further namespace gets a hidden node back.
func TestUserCannotUndo(t *testing.T) {
	if os.Geteuid() == 0 {
		return // root may do anything
	}
	dev := tree(t)
	script := `umount $0/dri; unshare -Urm sh -c "umount $0/dri; umount -l $0/dri; mount -t tmpfs none $0/dri/by-path && echo is root there"
cat $0/dri/card0 && echo is back`
	out, isolated := run(t, strings.ReplaceAll(script, "$0", dev), dev, dev+"/dri/card0")
	if strings.Contains(out, "is back") || isolated && !strings.Contains(out, "is root there") {
		t.Errorf("inside:\n%s", out)
	}
}

// TestNoWayPastTheCover: neither the working directory, a directory that was open before, nor a standard stream leads to a hidden node.
// Other open files are inherited.
func TestNoWayPastTheCover(t *testing.T) {
	dev := tree(t)
	t.Chdir(dev + "/dri")
	for from, to := range map[string]int{dev + "/dri": 101, dev + "/lpu0": 102} {
		fd, err := unix.Open(from, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Dup3(fd, to, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(to) })
	}
	const script = `cat card0 && echo by name; cat /proc/self/fd/101/card0 && echo by descriptor; cat /proc/self/fd/102`
	out, isolated := run(t, script, dev, dev+"/dri/card0")
	if strings.Contains(out, "by name") || strings.Contains(out, "by descriptor") || isolated && !strings.HasSuffix(out, "this is lpu0\n") {
		t.Errorf("inside:\n%s", out)
	}
}
