package lease_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/hostile"
)

const (
	attacker = 61002
	stranger = 61003
	asksList = `{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","list":{}}`
	waits    = `{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","wish":{"count":1,"must":[%q],"wait":true}}`
)

// ways are those in which the arbiter reads connections.
func ways() map[string]func(*lease.Arbiter) {
	return map[string]func(*lease.Arbiter){"by itself": looksOnce, "by relays": byRelays}
}

func byRelays(a *lease.Arbiter) {
	a.Relay = true
	looksOnce(a)
}

// looksOnce has an arbiter look at the node once: a look takes longer than all else that a wish costs.
func looksOnce(a *lease.Arbiter) {
	look := a.Look
	once := sync.OnceValues(func() (lease.View, error) { return look(context.Background(), lease.Seek{}) })
	a.Look = func(context.Context, lease.Seek) (lease.View, error) { return once() }
}

// soon ends when what is asked should long have been answered.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	t.Cleanup(cancel)
	return ctx
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be several users")
	}
}

// raw is a connection to the arbiter that says what it likes, and may never read.
func raw(t *testing.T, dir string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// isServed wants a stranger to get what it asks for, and all of it to end with the connection.
func isServed(t *testing.T, dir string) {
	t.Helper()
	asUser(t, stranger, func() {
		c := dial(t, dir)
		defer func() { _ = c.Close() }()
		if g, err := c.Wish(soon(t), wish(1), nil); err != nil || len(g.LPUs) != 1 {
			t.Errorf("a stranger got %+v, %v", g, err)
		}
		if l, err := c.List(soon(t)); err != nil || !slices.ContainsFunc(l.Leases, func(l lease.Lease) bool { return l.UID == stranger }) {
			t.Errorf("a stranger saw %+v, %v", l, err)
		}
	})
}

// TestDescriptorsThatAreClosedSlowly: they harm who has passed them, and not the arbiter, its end, or
// other users. What of that user does not pass them is read again when its relay was replaced.
func TestDescriptorsThatAreClosedSlowly(t *testing.T) {
	needsRoot(t)
	for name, change := range ways() {
		t.Run(name, func(t *testing.T) {
			dir := aNode(t)
			serve := listening(t, dir)
			var attackers []*net.UnixConn
			asUser(t, attacker, func() {
				attackers = passesSlow(t, dir, 70)
			})
			t.Cleanup(serve(change))
			isServed(t, dir)
			asUser(t, attacker, func() { flood(t, dir) })
			isServed(t, dir)
			for _, conn := range attackers {
				_ = conn.Close()
			}
			isServed(t, dir)
		})
	}
}

// flood connects more often than a relay that sleeps can take orders, which is 300 times at most.
func flood(t *testing.T, dir string) {
	t.Helper()
	for range 300 {
		conn, err := net.Dial("unixpacket", filepath.Join(dir, "socket"))
		if err == nil {
			_, _ = conn.Write([]byte(asksList))
			_ = conn.Close()
		} else if !errors.Is(err, unix.EAGAIN) {
			t.Error(err)
			return
		}
	}
}

// TestDescriptorsAreRefused: by the kernel, where it can, from the first connection on that is made after the arbiter has begun.
func TestDescriptorsAreRefused(t *testing.T) {
	dir := serving(t)
	isThere(t, dir)
	conn := raw(t, dir)
	file, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := unix.GetsockoptInt(int(file.Fd()), unix.SOL_SOCKET, unix.SO_PASSRIGHTS); errors.Is(err, unix.ENOPROTOOPT) {
		t.Log("this kernel is older than Linux 6.16, and cannot")
		return
	}
	if err := unix.Sendmsg(int(file.Fd()), []byte(asksList), unix.UnixRights(int(file.Fd())), nil, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("passed: %v", err)
	}
	isThere(t, dir)
}

// isThere wants an answer of the arbiter.
func isThere(t *testing.T, dir string) *lease.List {
	t.Helper()
	c := dial(t, dir)
	defer func() { _ = c.Close() }()
	l, err := c.List(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestARelayIsReplaced: when it sleeps and takes no more, so that the user can have LPUs again.
func TestARelayIsReplaced(t *testing.T) {
	needsRoot(t)
	dir := aNode(t)
	serve := listening(t, dir)
	asUser(t, attacker, func() { passesSlow(t, dir, 10) })
	t.Cleanup(serve(byRelays))
	isServed(t, dir)
	asUser(t, attacker, func() {
		flood(t, dir)
		await.Until(t, "the user gets a lease", func() error { // the relay that has read the wish may be replaced just then
			c := dial(t, dir)
			defer func() { _ = c.Close() }()
			_, err := c.Wish(soon(t), wish(8), nil)
			return err
		})
	})
	await.For(t, "the lease has ended", func() bool { return len(isThere(t, dir).Leases) == 0 })
}

// passesSlow connects so often, and passes a descriptor each time whose last close sleeps. The arbiter may not have begun: its close is the
// last.
func passesSlow(t *testing.T, dir string, often int) (all []*net.UnixConn) {
	t.Helper()
	for range often {
		conn, fd := raw(t, dir), hostile.Lingering(t)
		if _, _, err := conn.WriteMsgUnix([]byte(asksList), unix.UnixRights(fd), nil); err != nil {
			t.Error(err)
		}
		_ = unix.Close(fd)
		all = append(all, conn)
	}
	return all
}

// TestClientsThatNeverRead: the arbiter hangs up on those that ask on and on, those that wait stay in the queue, and a stranger is served.
func TestClientsThatNeverRead(t *testing.T) {
	needsRoot(t)
	for name, change := range ways() {
		t.Run(name, func(t *testing.T) {
			dir := serving(t, change)
			holder := dial(t, dir)
			g, err := holder.Wish(t.Context(), wish(1), nil)
			if err != nil {
				t.Fatal(err)
			}
			asUser(t, attacker, func() {
				for i := range 20 {
					conn := raw(t, dir)
					if i == 0 {
						_, _ = fmt.Fprintf(conn, waits, g.LPUs[0].Address)
						continue
					}
					go func() {
						for err := error(nil); err == nil; {
							_, err = conn.Write([]byte(asksList))
						}
					}()
				}
			})
			isServed(t, dir)
			_ = holder.Close()
			await.For(t, "who waited has it", func() bool {
				return slices.ContainsFunc(isThere(t, dir).Leases, func(l lease.Lease) bool { return l.UID == attacker })
			})
			isServed(t, dir)
		})
	}
}

// TestAThousandWait: they get LPUs in their order, and each the newest of its places, however many there were in between.
func TestAThousandWait(t *testing.T) {
	dir := serving(t, looksOnce)
	many := 1000
	if os.Getuid() != 0 {
		many = 50 // a user has 64 connections
	}
	holder, rest := dial(t, dir), dial(t, dir)
	for c, n := range map[*lease.Client]int{holder: 1, rest: 7} {
		if _, err := c.Wish(t.Context(), wish(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var (
		mu      sync.Mutex
		granted []int
		last    lease.Place
		said    int
		waiting sync.WaitGroup
	)
	for i := range many {
		c, queued := dial(t, dir), make(chan struct{})
		w := wish(1)
		w.Wait = true
		waiting.Go(func() {
			first := true
			_, err := c.Wish(ctx, w, func(p lease.Place) {
				if first {
					close(queued)
				}
				first = false
				if mu.Lock(); i == many-1 {
					last = p
					said++
				}
				mu.Unlock()
			})
			if err == nil {
				mu.Lock()
				granted = append(granted, i)
				mu.Unlock()
			}
			_ = c.Close()
		})
		<-queued
	}
	_ = holder.Close()
	enough := min(many/2, 20)
	await.For(t, "some got theirs", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(granted) >= enough
	})
	mu.Lock()
	for i, who := range granted {
		if who != i {
			t.Errorf("they got theirs in the order %v", granted)
			break
		}
	}
	// For each LPU that is given on it hears that it was given back, and its next place.
	if most := 2 * (len(granted) + 2); said > most || last.Place > many {
		t.Errorf("the last one heard %d times where it is, at last %+v; expected at most %d", said, last, most)
	}
	mu.Unlock()
	cancel()
	waiting.Wait()
	await.For(t, "all have left", func() bool { return len(isThere(t, dir).Waiting) == 0 })
}

// TestAFloodOfRequests: users whose connections ask on and on do not keep a stranger from being served.
func TestAFloodOfRequests(t *testing.T) {
	needsRoot(t)
	for name, change := range ways() {
		t.Run(name, func(t *testing.T) {
			dir := serving(t, change)
			ctx, cancel := context.WithCancel(t.Context())
			var flooding sync.WaitGroup
			for i := range 40 {
				var c *lease.Client
				asUser(t, attacker+10+i%4, func() { c = dial(t, dir) })
				flooding.Go(func() {
					for err := error(nil); err == nil; {
						if i%2 == 0 {
							_, err = c.List(ctx)
						} else if _, err = c.Wish(ctx, lease.Wish{Selection: wish(1).Selection, DryRun: true}, nil); refusedWith(err, finding.LeaseNoneFree) {
							err = nil
						}
					}
				})
			}
			for range 3 {
				isServed(t, dir)
			}
			cancel()
			flooding.Wait()
		})
	}
}

// TestASlowServiceManager: while it has no room for a connection, who has to be stored waits, and other clients are answered.
func TestASlowServiceManager(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "n")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	full, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(full) }()
	for err == nil {
		err = unix.Sendto(full, []byte("x"), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: socket})
	}
	dir := serving(t, func(a *lease.Arbiter) { a.Store = &lease.Store{Socket: socket, Wait: await.Limit} })
	c := dial(t, dir)
	done := make(chan error, 1)
	go func() {
		_, err := c.Wish(t.Context(), wish(1), nil)
		done <- err
	}()
	await.For(t, "it is leased", func() bool { return len(isThere(t, dir).Leases) == 1 })
	select {
	case err := <-done:
		t.Errorf("answered before it was stored: %v", err)
	default:
	}
	message := make([]byte, 1000)
	for stored := false; !stored; {
		n, _, _, _, err := manager.ReadMsgUnix(message, make([]byte, 100))
		if err != nil {
			t.Fatal(err)
		}
		stored = n > 1
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	go func() { // when the test ends, more is said
		for err := error(nil); err == nil; {
			_, _, _, _, err = manager.ReadMsgUnix(message, make([]byte, 100))
		}
	}()
}

// TestPatiently: what passes is asked for again until the limit, and nothing else is.
func TestPatiently(t *testing.T) {
	busy, other := &lease.Refusal{ID: finding.LeaseBusy}, &lease.Refusal{ID: finding.LeaseLimit}
	for name, c := range map[string]struct {
		limit   time.Duration
		answers []error
		want    error
	}{
		"busy, then granted": {await.Limit, []error{busy, busy, nil}, nil},
		"refused":            {await.Limit, []error{other}, other},
		"the limit":          {0, []error{busy}, busy},
		"then hung up":       {await.Limit, []error{busy, os.ErrClosed}, busy},
		"an error":           {await.Limit, []error{os.ErrClosed}, os.ErrClosed},
	} {
		asked := 0
		err := lease.Patiently(t.Context(), c.limit, func() error {
			asked++
			return c.answers[asked-1]
		})
		if !errors.Is(err, c.want) || asked != len(c.answers) {
			t.Errorf("%s: %v after %d", name, err, asked)
		}
	}
}

// BenchmarkStrangersWish is what a wish and its end take while so many wait, and while four users ask on and on besides.
func BenchmarkStrangersWish(b *testing.B) {
	for _, c := range []struct{ waiting, asking int }{{10, 0}, {1000, 0}, {1000, 40}} {
		b.Run(fmt.Sprintf("waiting=%d,asking=%d", c.waiting, c.asking), func(b *testing.B) {
			if os.Getuid() != 0 {
				b.Skip("a user has 64 connections")
			}
			dir := serving(b, looksOnce)
			ctx, cancel := context.WithCancel(b.Context())
			var others sync.WaitGroup
			defer others.Wait()
			defer cancel()
			all := lease.Wish{Selection: lease.Selection{Count: 8}, Wait: true}
			if _, err := dial(b, dir).Wish(ctx, wish(8), nil); err != nil {
				b.Fatal(err)
			}
			for range c.waiting {
				client, queued := dial(b, dir), make(chan struct{})
				once := sync.OnceFunc(func() { close(queued) })
				others.Go(func() { _, _ = client.Wish(ctx, all, func(lease.Place) { once() }) })
				<-queued
			}
			for i := range c.asking {
				var client *lease.Client
				asUser(b, attacker+10+i%4, func() { client = dial(b, dir) })
				others.Go(func() {
					for err := error(nil); err == nil; {
						_, err = client.List(ctx)
					}
				})
			}
			for b.Loop() {
				client := dial(b, dir)
				if _, err := client.Wish(ctx, wish(1), nil); !refusedWith(err, finding.LeaseNoneFree) {
					b.Fatal(err)
				}
				_ = client.Close()
			}
		})
	}
}
