package plugin

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
)

// claims are the LPUs that prepared claims have, as a test sets them.
type claims struct {
	atomic.Pointer[map[pci.Address]string]
}

func (c *claims) have(ids ...string) {
	held := map[pci.Address]string{}
	for _, id := range ids {
		a, err := cdi.ParseAddressName(id)
		if err != nil {
			panic(err)
		}
		held[a] = "claim ml/old (1234)"
	}
	c.Store(&held)
}

// gated gives the plugin a gate whose file the test changes with own.
func (r *rig) gated() (c *claims, own func(owner.Owner)) {
	r.t.Helper()
	c = &claims{}
	c.have()
	g := &owner.Gate{
		File: owner.File{Dir: r.t.TempDir()}, Me: owner.Plugin, Log: slog.New(slog.DiscardHandler),
		Others: func(context.Context) (map[pci.Address]string, error) { return *c.Load(), nil },
	}
	r.plugin.Node.Gate = g
	g.Renew(r.t.Context())
	return c, func(o owner.Owner) {
		r.t.Helper()
		if _, err := g.File.Set(r.t.Context(), o, "a test", false); err != nil {
			r.t.Fatal(err)
		}
	}
}

// registered waits until the server knows that it is: the kubelet knows it a moment before.
func (i *instance) registered() {
	for end := time.Now().Add(await.Limit); i.ready() != nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// TestChangeOver: while the driver is the owner no LPU is offered or handed out, and who has one keeps it. After the way back those that
// claims still have are not offered.
func TestChangeOver(t *testing.T) {
	bothRules(t, func(t *testing.T, rules rules) {
		r := orion(t)
		c, own := r.gated()
		k := newKubelet(t, rules)
		k.start()
		r.scan()
		i := r.serve(k, false)
		k.wait(8)
		i.registered()
		_, held, err := k.admit(2)
		if err != nil {
			t.Fatal(err)
		}
		client := k.primary().client
		allocate := func(ids ...string) error {
			_, err := client.Allocate(t.Context(), request(ids...))
			return err
		}
		gate := r.plugin.Node.Gate

		own(owner.DRA) // and nobody has looked yet
		if err := allocate(ids(4)...); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "by the DRA driver") {
			t.Errorf("handed out after the change: %v", err)
		}
		gate.Renew(t.Context())
		r.plugin.Again(t.Context())
		k.wait(0)
		if _, err := client.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: held}); err != nil {
			t.Errorf("a container that has its LPUs is not started again: %v", err)
		}
		if phase, err := i.server.Ready(); err != nil || !strings.HasPrefix(phase, "registered: the LPUs of this node are handed out by ") {
			t.Errorf("%q, %v", phase, err)
		}
		if i.value("lpuctl_owner", "owner", "dra") != 1 || i.value("lpuctl_owner", "owner", "plugin") != 0 {
			t.Error("the metrics do not say who it is")
		}
		if got := i.value("lpuctl_lpu_reason", "lpu", "lpu1", "device", orionIDs[1], "reason", "owner-dra", "severity", "error"); got != 1 {
			t.Errorf("the metrics do not say why: %v", got)
		}

		c.have(ids(4, 5)...)
		own(owner.Plugin)
		gate.Renew(t.Context())
		r.plugin.Again(t.Context())
		k.wait(6)
		if err := allocate(ids(5)...); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "claim ml/old") {
			t.Errorf("handed out what a claim has: %v", err)
		}
		c.have(ids(6)...) // since the last look
		if err := allocate(ids(6)...); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("handed out what a claim has got since: %v", err)
		}
		if err := allocate(ids(3)...); err != nil {
			t.Errorf("not handed out: %v", err)
		}
		c.have()
		gate.Renew(t.Context())
		r.plugin.Again(t.Context())
		k.wait(8)
	})
}

// TestUnknownOwner: of a file that cannot be used nothing is offered, and serve is not ready.
func TestUnknownOwner(t *testing.T) {
	r := orion(t)
	r.gated()
	k := newKubelet(t, rules137)
	k.start()
	r.scan()
	i := r.serve(k, false)
	k.wait(8)
	i.registered()
	gate := r.plugin.Node.Gate
	gate.Others = func(context.Context) (map[pci.Address]string, error) { return nil, io.ErrUnexpectedEOF }
	gate.Renew(t.Context())
	r.plugin.Again(t.Context())
	k.wait(0)
	if err := i.ready(); err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
		t.Errorf("ready: %v", err)
	}
}
