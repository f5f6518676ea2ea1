package plugin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// cordon cordons the cards with these addresses, and no others, and tells the plugin.
func (r *rig) cordon(addresses ...string) {
	r.t.Helper()
	_, _, err := health.ChangeCordons(r.t.Context(), r.plugin.Node.Memory.Cordons().Path, func(c health.Cordons) error {
		clear(c)
		for _, text := range addresses {
			a, err := pci.Parse(text)
			if err != nil {
				return err
			}
			c[a] = health.Cordon{Reason: "a test", Since: time.Unix(1e9, 0), By: "root(0)"}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.scan()
}

// TestCordon: the kubelet does not hand a cordoned LPU out any more. Who has it keeps it.
func TestCordon(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	r.plugin.Node.Memory.Dir = t.TempDir()
	k.start()
	r.scan()
	r.serve(k, false)
	k.wait(8)
	_, held, err := k.admit(1)
	if err != nil || !slices.Equal(held, ids(0)) {
		t.Fatal(held, err)
	}
	r.cordon("0000:43:00.1", "0000:45:00.1") // lpu0, which a pod has, and lpu2
	k.wait(6)
	if health := k.health(); health[orionIDs[0]] != api.Unhealthy || health[orionIDs[2]] != api.Unhealthy {
		t.Errorf("the kubelet knows %v", health)
	}
	if _, err := k.primary().client.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: held}); err != nil {
		t.Errorf("a container that has a cordoned LPU is not started again: %v", err)
	}
	for size, want := range map[int][]string{1: ids(1), 4: ids(4, 5, 6, 7)} { // the kubelet does not know yet, and offers all
		if got, err := r.prefer(int32(size), nil, orionIDs...); err != nil || !slices.Equal(got, want) {
			t.Errorf("preferred are %v, not %v (%v)", got, want, err)
		}
	}
	if got, err := r.prefer(7, nil, orionIDs...); err == nil || !strings.Contains(err.Error(), "not usable at this moment: lpu0, lpu2") {
		t.Errorf("seven of six: %v, %v", got, err)
	}
	if got, err := r.prefer(2, ids(0), orionIDs...); err != nil || !slices.Contains(got, orionIDs[0]) || slices.Contains(got, orionIDs[2]) {
		t.Errorf("with lpu0, which the pod has: %v, %v", got, err)
	}
	const why = "lpu2 (pci-0000-45-00.1) is not handed out: it is cordoned since 2001-09-09T01:46:40Z by root(0): a test"
	if _, err := r.allocate(ids(1, 2)...); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != why {
		t.Errorf("a cordoned LPU is handed out: %v", err)
	}
	r.cordon("0000:45:00.1")
	k.wait(7)
	r.cordon()
	k.wait(8)
	if _, err := r.allocate(ids(2)...); err != nil {
		t.Error(err)
	}
}
