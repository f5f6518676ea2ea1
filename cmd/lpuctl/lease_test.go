package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/lease"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// leaseNode is a simulated node with a short path: that of a socket has at most 107 bytes.
func leaseNode(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lpu") //nolint:usetesting // its paths are longer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if _, err := (&simulate.Node{Profile: "orion", LPUs: 8}).Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// askArbiter asks the arbiter of a node, with the config file of that node, for LPUs.
func askArbiter(t *testing.T, dir, config string, w lease.Wish) (*lease.Grant, error) {
	t.Helper()
	file := filepath.Join(dir, "etc/lpuctl/config.yaml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	a := &app{cli.App{Root: host.Root(dir), Env: func(string) (string, bool) { return "", false }, Log: slog.New(slog.DiscardHandler)}}
	arbiter, err := a.newArbiter()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	if arbiter.Listener, err = listenForLeases(socket); err != nil {
		t.Fatal(err)
	}
	arbiter.Describe = func(p lease.Peer) lease.Peer { return lease.Peer{UID: 1000, PID: p.PID} } // root has no limits
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- arbiter.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c, err := lease.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.Wish(t.Context(), w, nil)
}

func refusedFor(err error, id finding.ID) bool {
	r, ok := errors.AsType[*lease.Refusal](err)
	return ok && r.ID == id
}

// TestKubernetesNeedsAPool: where serve hands out the LPUs of a node, only those that the config sets apart are leased.
func TestKubernetesNeedsAPool(t *testing.T) {
	dir := leaseNode(t)
	one := lease.Wish{Selection: lease.Selection{Count: 1}}
	plugins := filepath.Join(dir, "var/lib/kubelet/device-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(plugins, "lpuctl-1.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := askArbiter(t, dir, "", one); !refusedFor(err, finding.LeaseClosed) || !strings.Contains(err.Error(), "Kubernetes hands out") {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), dir, discovery.Options{Models: discovery.BuiltinModels()})
	if err != nil {
		t.Fatal(err)
	}
	pool := "leases: {pool: [\"" + inv.LPUs[5].Address.String() + "\"]}\n"
	if g, err := askArbiter(t, dir, pool, one); err != nil || len(g.LPUs) != 1 || g.LPUs[0].Name != "lpu5" {
		t.Fatalf("%+v, %v", g, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // as if serve were killed: the socket stays, and nobody listens at it
	if _, err := askArbiter(t, dir, "", one); err != nil {
		t.Fatal(err)
	}
}

// TestLimits: the config says how much one user may have, and for how long.
func TestLimits(t *testing.T) {
	dir := leaseNode(t)
	three, day := lease.Wish{Selection: lease.Selection{Count: 3}}, lease.Wish{Selection: lease.Selection{Count: 1}, For: 24 * time.Hour}
	for _, w := range []lease.Wish{three, day} {
		if _, err := askArbiter(t, dir, "leases: {maxLPUs: 2, maxHours: 8}\n", w); !refusedFor(err, finding.LeaseLimit) {
			t.Errorf("%+v: %v", w, err)
		}
		if _, err := askArbiter(t, dir, "leases: {maxLPUs: 3, maxHours: 24}\n", w); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
	g, err := askArbiter(t, dir, "leases: {maxHours: 8}\n", three)
	if left := g.Until - host.SinceBoot(); err != nil || left > 8*time.Hour || left < 7*time.Hour {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestABadConfigIsToldToWhoAsks: the arbiter starts all the same, because systemd would start it again and again.
func TestABadConfigIsToldToWhoAsks(t *testing.T) {
	_, err := askArbiter(t, leaseNode(t), "leases: {pool: [lpu3]}\n", lease.Wish{Selection: lease.Selection{Count: 1}})
	if !refusedFor(err, finding.LeaseRequest) || !strings.Contains(err.Error(), `"lpu3" is not a PCI address`) {
		t.Error(err)
	}
}
