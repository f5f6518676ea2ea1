package lease_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestHooks: between two leases the hook runs on each LPU, and who waits gets it then. Where it fails the LPU is kept back, also by the
// next arbiter, until root has it run again. One that runs when the arbiter ends runs again.
func TestHooks(t *testing.T) {
	dir := aNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	program := filepath.Join(dir, "hook")
	text := "#!/bin/sh\necho $LPUCTL_LPU $LPUCTL_UID >>" + dir + "/ran\n" +
		"[ ! -e " + dir + "/hang ] || exec sleep 1000\n[ ! -e " + dir + "/broken ] || { echo no cleaner; exit 3; }\n"
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	hooked := func(a *lease.Arbiter) {
		a.Hook = &lease.Hook{Program: program, Limit: time.Hour}
		a.Describe = func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
			return lease.Peer{UID: 0, PID: p.PID}, nil
		}
	}
	ran := func() string {
		data, _ := os.ReadFile(filepath.Join(dir, "ran"))
		return string(data)
	}
	stop := serve(t, dir, hooked)
	c := dial(t, dir)
	three := lease.Wish{Selection: lease.Selection{Count: 1}, Wait: true}
	g, err := c.Wish(t.Context(), three, nil)
	if err != nil {
		t.Fatal(err)
	}
	three.Must = append(three.Must, g.LPUs[0].Address)
	name := g.LPUs[0].Name
	if ran() != "" {
		t.Errorf("before a lease: %s", ran())
	}
	_ = c.Close()
	next := dial(t, dir)
	if _, err := next.Wish(ctx, three, nil); err != nil || ran() != name+" 0\n" {
		t.Fatalf("%v, %q", err, ran())
	}

	flag := func(name string) func() {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return func() { _ = os.Remove(filepath.Join(dir, name)) }
	}
	mend := flag("broken")
	_ = next.Close()
	three.Wait = false
	refused := func(why string) {
		t.Helper()
		await.Until(t, why, func() error {
			c := dial(t, dir)
			defer func() { _ = c.Close() }()
			if _, err := c.Wish(t.Context(), three, nil); !refusedWith(err, finding.LeaseNoneFree) || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("not refused so: %w", err)
			}
			return nil
		})
	}
	refused(name + " kept back: leases.hook has failed on it: exit status 3: no cleaner")
	stop()
	stop = serve(t, dir, hooked)
	refused("leases.hook has failed on it")
	root := dial(t, dir)
	err = root.Retry(ctx, three.Must[0])
	if !refusedWith(err, finding.LeaseHookFailed) || !strings.Contains(err.Error(), "no cleaner") {
		t.Errorf("still broken: %v", err)
	}
	before := len(ran())
	mend()
	hang := flag("hang")
	again := make(chan error, 1)
	go func() { again <- root.Retry(ctx, three.Must[0]) }()
	await.For(t, "the hook runs", func() bool { return len(ran()) > before })
	stop()
	if err := <-again; err == nil || refusedWith(err, finding.LeaseHookFailed) {
		t.Errorf("the arbiter has ended: %v", err)
	}
	hang()
	stop = serve(t, dir, hooked)
	defer stop()
	three.Wait = true
	if _, err := dial(t, dir).Wish(ctx, three, nil); err != nil {
		t.Error(err)
	}
}

// TestWhoWaitsForAProcess: the node is looked at again and again for one who waits alone, so that the end of a process is seen.
func TestWhoWaitsForAProcess(t *testing.T) {
	dir := serving(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	opened := opens(t, dir, 4711, 3)
	w := wish(8)
	w.Wait = true
	if _, err := dial(t, dir).Wish(ctx, w, func(lease.Place) { opened() }); err != nil {
		t.Error(err)
	}
}

// TestContainersEnd: the arbiter has a container end whose time is over. Of one of root's, only if the user could do so.
func TestContainersEnd(t *testing.T) {
	id := strings.Repeat("c0", 32)
	for _, c := range []struct {
		mode os.FileMode // of the daemon's socket
		ends bool
	}{{0o666, true}, {0o600, false}} {
		dir := aNode(t)
		ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
		t.Cleanup(cancel)
		daemon := filepath.Join(dir, "docker.sock")
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", daemon)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if err := os.Chmod(daemon, c.mode); err != nil {
			t.Fatal(err)
		}
		process := filepath.Join(dir, "node/proc/4712")
		if err := os.MkdirAll(process, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(process+"/cgroup", []byte("0::/docker/"+id+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		asked := make(chan lease.Ending, 100)
		stop := serve(t, dir, func(a *lease.Arbiter) {
			a.Describe = func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
				return lease.Peer{UID: 1000, PID: p.PID}, nil
			}
			a.Daemons = []string{daemon}
			a.End = func(_ context.Context, e lease.Ending) error {
				asked <- e
				return os.RemoveAll(process)
			}
		})
		holder := dial(t, dir)
		w := wish(1)
		w.For = 50 * time.Millisecond
		g, err := holder.Wish(t.Context(), w, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := holder.Bind(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		_ = holder.Close()
		if c.ends {
			var e lease.Ending
			select {
			case e = <-asked:
			case <-ctx.Done():
			}
			if e.Signal != unix.SIGTERM || e.Container != id || e.UID != 1000 || host.SinceBoot() < g.Until {
				t.Errorf("%+v", e)
			}
			w := wish(8)
			w.Wait = true
			if _, err := dial(t, dir).Wish(ctx, w, nil); err != nil {
				t.Error(err)
			}
		} else {
			await.For(t, "the time is over", func() bool { return host.SinceBoot() > g.Until })
			if _, err := dial(t, dir).Wish(t.Context(), wish(8), nil); err == nil || len(asked) > 0 {
				t.Errorf("it was ended: %v", err)
			}
		}
		stop()
	}
}
