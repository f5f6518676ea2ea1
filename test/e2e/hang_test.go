package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// hangingTree serves a simulated node through FUSE; reads of some files never end.
type hangingTree struct {
	*fs.LoopbackNode
	files   []string      // ends of the paths of files that hang
	release chan struct{} // closed when reads end; nil: they end when the reader is killed
}

func (n *hangingTree) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &hangingTree{child.(*fs.LoopbackNode), n.files, n.release}
}

func (n *hangingTree) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	handle, openFlags, errno := n.LoopbackNode.Open(ctx, flags)
	hangs := func(file string) bool { return strings.HasSuffix(n.Path(nil), file) }
	if errno == 0 && slices.ContainsFunc(n.files, hangs) {
		return hangingFile{handle, n.release}, openFlags | fuse.FOPEN_DIRECT_IO, 0
	}
	return handle, openFlags, errno
}

type hangingFile struct {
	fs.FileHandle
	release chan struct{}
}

// Read ends when the reader is killed or, as a driver's read, not even then.
func (f hangingFile) Read(ctx context.Context, _ []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	if f.release != nil {
		<-f.release
		return nil, syscall.EIO
	}
	<-ctx.Done()
	return nil, syscall.EINTR
}

// hang mounts root so that files hang, and returns where.
func hang(t testing.TB, root string, release chan struct{}, files ...string) string {
	t.Helper()
	loopback, err := fs.NewLoopbackRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	options := fuse.MountOptions{DirectMountStrict: true, Options: []string{"dev"}}
	_, err = fs.Mount(here, &hangingTree{loopback.(*fs.LoopbackNode), files, release}, &fs.Options{MountOptions: options})
	if err != nil {
		t.Fatalf("mounting FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(here, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return here
}

func TestACardThatHangs(t *testing.T) {
	need(t, machine.FUSE)
	root := simulate(t)
	serial, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", cardAddress, "xmc.u.*/serial_num"))
	if err != nil || len(serial) != 1 {
		t.Fatal(serial, err)
	}
	others, _ := listed(t, root)
	delete(others.lpus, cardAddress)
	for name, c := range map[string]struct {
		file    string // that hangs
		reason  string // of the card that hangs; "" if it is not listed
		problem string // of the machine
		refresh int    // exit code of cdi refresh
		inSpec  bool
	}{
		"before the node is known":        {file: cardAddress + "/numa_node", reason: "read-stalled", refresh: 3},
		"after the node is known":         {file: filepath.Base(filepath.Dir(serial[0])) + "/serial_num", reason: "read-stalled", inSpec: true},
		"before it is known to be an LPU": {file: cardAddress + "/vendor", reason: "read-stalled", refresh: 3},
	} {
		t.Run(name, func(t *testing.T) {
			here := hang(t, root, nil, c.file)
			got, took := listed(t, here)
			t.Logf("list took %v", took)
			if l, ok := got.lpus[cardAddress]; ok != (c.reason != "") || ok && (l["health"] != "unknown" || got.reasons[cardAddress] != c.reason) {
				t.Errorf("the card that hangs is listed: %v, %v, reasons %s; want unknown, reasons %s",
					ok, l["health"], got.reasons[cardAddress], c.reason)
			}
			if got.problems[cardAddress] != c.problem {
				t.Errorf("the problems with the card that hangs are %q, want %q", got.problems[cardAddress], c.problem)
			}
			delete(got.lpus, cardAddress)
			if diff := cmp.Diff(others.lpus, got.lpus); diff != "" {
				t.Errorf("without the hanging card (-), the others are (+):\n%s", diff)
			}
			specOfAHungCard(t, root, here, c.refresh, c.inSpec)
			// What it shows of another card is decoration in part, which may be missing; that it ends is asked for.
			if r := machine.Run(t, machine.Binary(t), "--root", here, "describe", "0000:43:00.1"); r.Code != 0 {
				t.Errorf("describe: exit code %d: %s", r.Code, r.Stderr)
			}
		})
	}
}

// TestAReadThatSleeps: not even SIGKILL ends a process with a read to which FUSE does not answer. The
// command ends all the same, and so does its output; the other cards are known whole, and the one
// that hangs is neither called healthy nor given away.
func TestAReadThatSleeps(t *testing.T) {
	need(t, machine.FUSE)
	root := simulate(t)
	for _, file := range []string{"/dev_offline", "/config", "/mig_calibration", "/hwmon/hwmon*/temp1_input", "/xmc.u.*/serial_num"} {
		t.Run(file, func(t *testing.T) {
			found, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", cardAddress) + file)
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			release := make(chan struct{})
			here := hang(t, root, release, strings.TrimPrefix(found[0], filepath.Join(root, "sys/bus/pci/devices")+"/"))
			t.Cleanup(func() { close(release) }) // before the file system is gone
			var document struct {
				LPUs []struct {
					Name, Address, Health string
					Reasons               []struct{ ID string }
					Temperatures          []any
				}
			}
			if err := json.Unmarshal([]byte(ends(t, release, "--root", here, "health", "-o", "json")), &document); err != nil {
				t.Fatal(err)
			}
			hung := ""
			for _, l := range document.LPUs {
				switch {
				case l.Address == cardAddress:
					hung = l.Name
					if l.Health != "unknown" || len(l.Reasons) != 1 || l.Reasons[0].ID != "read-stalled" {
						t.Errorf("the card that hangs: %+v", l)
					}
				case l.Health != "healthy" || len(l.Reasons) > 0 || len(l.Temperatures) == 0:
					t.Errorf("another card: %+v", l)
				}
			}
			ends(t, release, "--root", here, "list")
			if out := ends(t, release, "--root", here, "allocate", "-n", fmt.Sprint(len(document.LPUs)-1)); strings.Contains(out, hung+" ") {
				t.Errorf("allocate gives the card that hangs away:\n%s", out)
			}
		})
	}
}

// TestSingleReadsThatSleep: what is read of a card before it is known to answer, and for describe
// alone, keeps no command from ending either.
func TestSingleReadsThatSleep(t *testing.T) {
	need(t, machine.FUSE)
	const lpu, management = "0000:44:00.1", "0000:44:00.0"
	for _, c := range []struct{ file, fault, lost, command string }{
		{lpu + "/driver_override", "unbound@1", "", "list"},
		{management + "/recovery", "", lpu, "list"},
		{lpu + "/vpd", "", "", "describe lpu1"},
	} {
		t.Run(c.file, func(t *testing.T) {
			args := []string{"--lpus", "4"}
			if c.fault != "" {
				args = append(args, "--fault", c.fault)
			}
			root := simulate(t, args...)
			devices := filepath.Join(root, "sys/bus/pci/devices")
			if c.lost != "" {
				if err := os.RemoveAll(filepath.Join(devices, c.lost)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(filepath.Join(devices, c.file)); err != nil {
				t.Fatal(err)
			}
			release := make(chan struct{})
			here := hang(t, root, release, c.file)
			t.Cleanup(func() { close(release) })
			if out := ends(t, release, append([]string{"--root", here}, strings.Fields(c.command)...)...); !strings.Contains(out, "lpu1") {
				t.Errorf("it prints %s", out)
			}
		})
	}
}

// ends runs lpuctl, which must end, and returns what it printed.
func ends(t *testing.T, release chan struct{}, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), machine.Binary(t), args...)
	printed := make(chan []byte, 1)
	go func() {
		out, _ := cmd.Output() // until nobody has the pipe open
		printed <- out
	}()
	select {
	case out := <-printed:
		return string(out)
	case <-time.After(time.Minute):
		close(release) // or it is never done
		t.Fatalf("%v: does not end", args)
		return ""
	}
}

// inventory is what list says, by PCI address: of the LPUs all that does not depend on the number of cards.
type inventory struct {
	lpus              map[string]map[string]any
	reasons, problems map[string]string // ids
}

func listed(t *testing.T, root string) (inventory, time.Duration) {
	t.Helper()
	start := time.Now()
	r := machine.Run(t, machine.Binary(t), "--root", root, "list", "-o", "json")
	took := time.Since(start)
	var document struct {
		LPUs     []map[string]any
		Problems []struct{ ID, Subject string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &document); err != nil || r.Code != 0 {
		t.Fatalf("list: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	inv := inventory{map[string]map[string]any{}, map[string]string{}, map[string]string{}}
	for _, l := range document.LPUs {
		address := fmt.Sprint(l["address"])
		var ids []string
		for _, reason := range l["reasons"].([]any) {
			ids = append(ids, fmt.Sprint(reason.(map[string]any)["id"]))
		}
		inv.reasons[address] = strings.Join(ids, " ")
		for _, key := range []string{"name", "index", "ring"} {
			delete(l, key)
		}
		inv.lpus[address] = l
	}
	for _, p := range document.Problems {
		inv.problems[p.Subject] += p.ID
	}
	return inv, took
}

// specOfAHungCard wants in the spec the cards whose node is known, by address.
func specOfAHungCard(t *testing.T, root, here string, code int, inSpec bool) {
	t.Helper()
	spec := filepath.Join(root, "var/run/cdi", specName)
	if err := os.Remove(spec); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if r := machine.Run(t, machine.Binary(t), "--root", here, "cdi", "refresh"); r.Code != code {
		t.Errorf("cdi refresh: exit code %d, want %d: %s", r.Code, code, r.Stderr)
	}
	want := slices.Clone(otherCards)
	if inSpec {
		want = slices.Insert(want, 2, "0000-45-00.1")
	}
	if diff := cmp.Diff(want, cardsInSpec(t, root)); diff != "" {
		t.Errorf("the cards in the spec:\n%s", diff)
	}
}
