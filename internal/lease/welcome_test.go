package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
)

// household is an arbiter of a node with users who may have one LPU each. It takes who connects for one of them.
type household struct {
	t    *testing.T
	dir  string
	come chan int // the uids of those who connect
	stop func()
}

func aHousehold(t *testing.T) *household {
	t.Helper()
	h := &household{t: t, dir: aNode(t), come: make(chan int, 1)}
	h.file("passwd", "anna:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n")
	h.file("subuid", "anna:100000:65536\nbob:200000:65536\n")
	h.serve()
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *household) file(name, text string) {
	h.t.Helper()
	dir := filepath.Join(h.dir, "etc")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *household) serve() {
	h.t.Helper()
	people := person.In(host.Root(h.dir), "lpu")
	h.stop = serve(h.t, h.dir, limited, func(a *lease.Arbiter) {
		a.Describe = func(ctx context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
			p.UID = <-h.come
			return lease.Identify(ctx, people, p)
		}
	})
}

// limited lets a user have one LPU.
func limited(a *lease.Arbiter) {
	look := a.Look
	a.Look = func(ctx context.Context, seek lease.Seek) (lease.View, error) {
		v, err := look(ctx, seek)
		v.Limits.LPUs = 1
		return v, err
	}
}

// as connects with a uid, and lists what there is.
func (h *household) as(uid int) (*lease.Client, *lease.List, error) {
	h.t.Helper()
	h.come <- uid
	c := dial(h.t, h.dir)
	l, err := c.List(h.t.Context())
	return c, l, err
}

// wish connects with a uid and wishes for one LPU.
func (h *household) wish(uid int) error {
	h.t.Helper()
	c, _, err := h.as(uid)
	if err == nil {
		_, err = c.Wish(h.t.Context(), wish(1), nil)
	}
	return err
}

// TestSubordinateUidsAreTheirOwner: they have together what the owner may have, can give it back, and are shown as the owner, also by
// the next arbiter.
func TestSubordinateUidsAreTheirOwner(t *testing.T) {
	h := aHousehold(t)
	anna, _, err := h.as(100001)
	if err != nil {
		t.Fatal(err)
	}
	reserve := lease.Reserve{Selection: lease.Selection{Count: 1}, For: time.Hour, Reason: "a test"}
	r, err := anna.Reserve(t.Context(), reserve)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{100001, 100002, 1000} {
		if c, _, err := h.as(uid); err != nil {
			t.Error(err)
		} else if _, err := c.Reserve(t.Context(), reserve); !refusedWith(err, finding.LeaseLimit) {
			t.Errorf("%d: %v", uid, err)
		}
	}
	if err := h.wish(100002); err != nil { // which is reserved
		t.Error(err)
	}
	if err := h.wish(1000); !refusedWith(err, finding.LeaseLimit) {
		t.Error(err)
	}
	if err := h.wish(1001); err != nil {
		t.Error(err)
	}
	if err := h.wish(200000); !refusedWith(err, finding.LeaseLimit) {
		t.Error(err)
	}
	_, l, err := h.as(1001)
	if err != nil || len(l.Leases) != 2 || l.Leases[0].String() != "anna (container)" ||
		l.Leases[0].UID != 1000 || l.Leases[0].Via != 100002 ||
		l.Leases[1].String() != "bob(1001)" || l.Leases[1].Via != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	h.stop()
	h.serve()
	c, l, err := h.as(165535)
	if err != nil || len(l.Reservations) != 1 || l.Reservations[0].Via != 100001 || l.Reservations[0].String() != "anna (container)" {
		t.Errorf("%+v, %v", l, err)
	}
	if err := c.Release(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
}

// TestConnectionsOfAllUids: all uids of a user have together as many connections as the user.
func TestConnectionsOfAllUids(t *testing.T) {
	h := aHousehold(t)
	w := wish(1)
	w.Wait = true
	if err := h.wish(100000); err != nil {
		t.Fatal(err)
	}
	for i := range 63 {
		c, _, err := h.as(100001 + i)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Wish(ctx, w, func(lease.Place) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if _, _, err := h.as(120000); !refusedWith(err, finding.LeaseBusy) {
		t.Error(err)
	}
	if _, _, err := h.as(1001); err != nil {
		t.Error(err)
	}
}

// TestStrangers: a uid of no user, or of two, is refused until the remedy was carried out.
func TestStrangers(t *testing.T) {
	h := aHousehold(t)
	refused := func(uid int, says, remedy string) {
		t.Helper()
		_, _, err := h.as(uid)
		r, ok := errors.AsType[*lease.Refusal](err)
		if !ok || r.ID != finding.LeaseUser || !strings.Contains(r.Message, says) || !strings.HasSuffix(r.Remedy, remedy) {
			t.Errorf("%d: %+v", uid, err)
		}
	}
	isAnna := func(uid int) {
		t.Helper()
		c, _, err := h.as(uid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wish(t.Context(), wish(1), nil); err != nil {
			t.Error(err)
		}
		if _, l, err := h.as(1001); err != nil || len(l.Leases) != 1 || l.Leases[0].String() != "anna (container)" {
			t.Errorf("%+v, %v", l, err)
		}
		_ = c.Close()
		await.For(t, "the lease has ended", func() bool {
			_, l, err := h.as(1001)
			return err == nil && len(l.Leases) == 0
		})
	}
	refused(300000, "uid 300000 is of no user of this machine", "sudo usermod --add-subuids 300000-300000 USER")
	h.file("subuid", "anna:100000:65536\nbob:165000:65536\nanna:300000:1\n") // as that does
	isAnna(300000)
	refused(165000, "anna, bob", "sudo usermod --del-subuids 165000-165000 USER")
	h.file("subuid", "anna:100000:65536\nbob:165001:65535\nanna:300000:1\n")
	isAnna(165000)
}

// TestWhoIsNotKnownYetHoldsUpNoOther: others are served meanwhile, who comes when too many arrive waits until one of them is known, and
// the arbiter ends though some have not been answered.
func TestWhoIsNotKnownYetHoldsUpNoOther(t *testing.T) {
	asked, known := make(chan bool), make(chan bool)
	kinds := make(chan bool, 1) // of those who connect: whether they stay unknown
	dir := serving(t, func(a *lease.Arbiter) {
		a.Describe = func(ctx context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
			if <-kinds {
				asked <- true
				select {
				case <-known:
				case <-ctx.Done():
				}
			}
			return p, nil
		}
	})
	arrive := func() {
		t.Helper()
		kinds <- true
		dial(t, dir)
		<-asked
	}
	arrive()
	kinds <- false
	c := dial(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	if _, err := c.Wish(ctx, wish(1), nil); err != nil {
		t.Fatal(err)
	}
	for range 1023 {
		arrive()
	}
	done := make(chan error)
	last := dial(t, dir)
	go func() {
		_, err := last.List(ctx)
		done <- err
	}()
	if l, err := c.List(ctx); err != nil || len(l.Leases) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	known <- true // so that there is room
	kinds <- false
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAUserNamespace: who is another uid there is seen by the uid outside.
func TestAUserNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can map uids that are not its own")
	}
	dir := aNode(t)
	h := &household{t: t, dir: dir}
	h.file("passwd", "anna:x:1000:1000::/:/bin/sh\n")
	h.file("subuid", "anna:100000:65536\n")
	people := person.In(host.Root(dir), "lpu")
	t.Cleanup(serve(t, dir, limited, func(a *lease.Arbiter) {
		a.Describe = func(ctx context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
			return lease.Identify(ctx, people, p)
		}
	}))
	got := map[string]int{}
	for _, uid := range []uint32{0, 5} {
		peer := exec.CommandContext(t.Context(), "/proc/self/exe") // whose directory other users cannot enter
		peer.Env = []string{"LEASE_TEST=peer", "LEASE_DIR=" + dir}
		peer.Stderr = os.Stderr
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
		peer.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{Uid: uid, Gid: uid},
		}
		out, err := peer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := peer.StdinPipe()
		if err := errors.Join(err, peer.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = peer.Wait() })
		var said string
		if _, err := fmt.Fscanln(out, &said); err != nil {
			t.Fatal(err)
		}
		got[said]++
		l, err := dial(t, dir).List(t.Context())
		if err != nil || len(l.Leases) != 1 || l.Leases[0].UID != 1000 || l.Leases[0].Via != 100000 {
			t.Errorf("as %d: %+v, %v", uid, l, err)
		}
	}
	if got["leased"] != 1 || got[string(finding.LeaseLimit)] != 1 {
		t.Errorf("%v", got)
	}
}

// peer wishes for an LPU, says what comes of it, and stays until its input ends.
func peer(dir string) error {
	c, err := lease.Dial(filepath.Join(dir, "socket"))
	if err != nil {
		return err
	}
	_, err = c.Wish(context.Background(), wish(1), nil)
	said := "leased"
	if r, ok := errors.AsType[*lease.Refusal](err); ok {
		said = string(r.ID)
	} else if err != nil {
		return err
	}
	fmt.Println(said)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}
