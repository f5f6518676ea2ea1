package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
)

// changed is an inventory with other LPUs.
func changed(inv *discovery.Inventory, change func(lpus []discovery.LPU)) *discovery.Inventory {
	next := *inv
	next.LPUs = slices.Clone(inv.LPUs)
	change(next.LPUs)
	return &next
}

// TestInvariant15NothingPreferredIsRefused: over random states of the node, what is preferred is handed out; and where nothing has
// to be connected, something is preferred as long as enough can be handed out.
func TestInvariant15NothingPreferredIsRefused(t *testing.T) {
	r := newRig(t, simulate.Node{Profile: "orion"}, func(o *Options) { o.Strategy = DeviceSpecs })
	good, random := r.scan(), long.Rand(t)
	preferred := 0
	for range long.Rounds(t, 1000) {
		inv := changed(good, func(lpus []discovery.LPU) {
			for i := range lpus {
				switch l := &lpus[i]; random.IntN(8) {
				case 0: // in its grace: healthy to the kubelet if it was so before, and not usable
					l.Usable, l.Health = false, discovery.HealthUnknown
					l.Reasons.Add(finding.Offline, l.Name, "a reset is under way", "")
				case 1:
					l.Health = discovery.HealthUnknown
				case 2:
					l.Usable, l.Health = false, discovery.Unhealthy
				case 3:
					l.Cordoned = &health.Cordon{}
				}
			}
		})
		r.plugin.Update(t.Context(), found(inv))
		connected := random.IntN(2) == 0
		s := *r.plugin.state.Load()
		s.options.RequireConnected = connected
		r.plugin.state.Store(&s)
		var available, must []string
		usable := 0
		for _, i := range random.Perm(8)[:1+random.IntN(8)] {
			available = append(available, orionIDs[i])
			if s.refuse(i, true) == nil {
				usable++
			}
		}
		if random.IntN(3) == 0 {
			must = available[:random.IntN(len(available))]
		}
		size := len(must) + random.IntN(len(available)-len(must)+1)
		chosen, err := r.prefer(int32(size), must, available...)
		if err == nil {
			preferred++
			cordoned := func(id string) bool { return inv.LPUs[slices.Index(orionIDs, id)].Cordoned != nil }
			if _, refusal := r.allocate(chosen...); refusal != nil && !slices.ContainsFunc(must, cordoned) { // the pod has it already
				t.Fatalf("preferred and refused: %v of %v, with %v: %v", chosen, available, must, refusal)
			}
		} else if size > 0 && !connected && must == nil && usable >= size {
			t.Fatalf("%d of %d can be handed out, and nothing is preferred: %v", size, usable, err)
		}
	}
	if preferred < 100 {
		t.Errorf("only %d preferences", preferred)
	}
}

// TestInvariant15NothingIsPreferredOfAnOldSnapshot: Allocate would refuse it.
func TestInvariant15NothingIsPreferredOfAnOldSnapshot(t *testing.T) {
	r := orion(t)
	r.scan()
	now := time.Now()
	r.plugin.Node.Now = func() time.Time { return now.Add(node.MaxAge + time.Second) }
	if chosen, err := r.prefer(1, nil, ids(0)...); err == nil {
		_, err = r.allocate(chosen...)
		t.Errorf("preferred %v; Allocate: %v", chosen, err)
	}
}

// TestInvariant16Unconnected: where LPUs have to be connected, Allocate refuses others, whether or not the kubelet asked before.
func TestInvariant16Unconnected(t *testing.T) {
	require := func(o *Options) { o.RequireConnected = true }
	for what, c := range map[string]struct {
		profile string
		cards   []int
		want    codes.Code
	}{
		"one":                     {"orion", []int{5}, codes.OK},
		"neighbours":              {"orion", []int{2, 3}, codes.OK},
		"around the end":          {"orion", []int{0, 7}, codes.OK},
		"half":                    {"orion", []int{4, 5, 6, 7}, codes.OK},
		"all":                     {"orion", []int{0, 1, 2, 3, 4, 5, 6, 7}, codes.OK},
		"no neighbours":           {"orion", []int{0, 2}, codes.FailedPrecondition},
		"one apart":               {"orion", []int{0, 1, 2, 5}, codes.FailedPrecondition},
		"one where no ring is":    {"lpu", []int{0}, codes.OK},
		"two where no ring is":    {"lpu", []int{0, 1}, codes.FailedPrecondition},
		"all eight and no cables": {"lpu", []int{0, 1, 2, 3, 4, 5, 6, 7}, codes.FailedPrecondition},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, simulate.Node{Profile: c.profile}, require)
			r.scan()
			var names []string
			for id, card := range r.plugin.state.Load().Cards {
				if slices.Contains(c.cards, card) {
					names = append(names, id)
				}
			}
			if _, err := r.allocate(names...); status.Code(err) != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
			_, err := r.plugin.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
				{DevicesIds: names[:1]}, {DevicesIds: names},
			}})
			if status.Code(err) != c.want {
				t.Errorf("the second container: %v, want %v", err, c.want)
			}
		})
	}
}

// lastLists are how many lists the kubelet got.
func (k *kubelet) listed() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lists
}

// TestInvariant8TheLastListIsThatOfTheOneThatStays: when another instance ends, the list is sent once more, though it is the same.
func TestInvariant8TheLastListIsThatOfTheOneThatStays(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	k.start()
	inv := r.scan()
	other := orion(t) // another process, with another view
	other.plugin.Update(t.Context(), found(changed(inv, func(lpus []discovery.LPU) { lpus[2].Health = discovery.Unhealthy })))
	stays := r.serve(k, true)
	k.wait(8)
	old := other.serve(k, true)
	k.wait(7)
	await.For(t, "the instance that stays has seen the other", func() bool { return len(stays.server.siblings("")) == 2 })
	stays.turns()
	before := k.listed()
	old.end()
	await.For(t, "the list is sent again", func() bool { return k.listed() > before })
	k.wait(8)
	if k.registers != 2 {
		t.Errorf("registered %d times", k.registers)
	}
}

// TestInvariant8Recall: another instance tells which of its LPUs are healthy, is not disturbed, and is not waited for long.
func TestInvariant8Recall(t *testing.T) {
	r, k, i := served(t, rules137)
	ask := func() map[string]bool {
		return (&Server{Plugin: New(Options{}, r.plugin.log), Dir: k.dir, Log: r.plugin.log}).Recall(t.Context())
	}
	want := map[string]bool{}
	for _, id := range orionIDs {
		want[id] = true
	}
	if got := ask(); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	r.plugin.Update(t.Context(), found(changed(r.inventory(), func(lpus []discovery.LPU) { lpus[2].Health = discovery.Unhealthy })))
	want[orionIDs[2]] = false
	if got := ask(); !maps.Equal(got, want) {
		t.Errorf("with one that is unhealthy: %v", got)
	}
	mute, err := net.Listen("unix", filepath.Join(k.dir, socketPrefix+"mute.sock")) // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	if got := (&Server{Dir: k.dir, Plugin: r.plugin}).Recall(ctx); ctx.Err() != nil || len(got) != 0 && len(got) != 8 {
		t.Errorf("beside one that does not answer: %v, %v", got, ctx.Err())
	}
	k.wait(7)
	if k.registers != 1 || i.ready() != nil {
		t.Errorf("the other one was disturbed: registered %d times, ready: %v", k.registers, i.ready())
	}
	_ = mute.Close()
	i.end()
	if got := ask(); len(got) != 0 {
		t.Errorf("of nobody: %v", got)
	}
}

// inventory is that of the rig's machine; the plugin is not told.
func (r *rig) inventory() *discovery.Inventory {
	r.t.Helper()
	inv, err := discovery.Scan(r.t.Context(), r.root, discovery.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	return inv
}

// TestInvariant14TheFirstListIsHeldBack: while the health of an LPU is not known at the start, it is not registered, for five seconds
// at most.
func TestInvariant14TheFirstListIsHeldBack(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	now := time.Unix(1e9, 0)
	r.plugin.Node.Now = func() time.Time { return now }
	server := &Server{Plugin: r.plugin, Dir: k.dir}
	may := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return server.waitForOthers(ctx, &fsnotify.Watcher{})
	}
	sick := changed(r.inventory(), func(lpus []discovery.LPU) { lpus[2].Health = discovery.HealthUnknown })
	for seconds := range 6 {
		r.plugin.Update(t.Context(), found(sick))
		limit := pollInterval / 2
		if seconds == 5 { // it is not to end by that
			limit = await.Limit
		}
		err := may(limit)
		if held := errors.Is(err, context.DeadlineExceeded); held != (seconds < 5) {
			t.Errorf("after %d s: held back: %t (%v)", seconds, held, err)
		}
		now = now.Add(time.Second)
	}
	if got := healthOf(r.devices(), orionIDs[2]); got != api.Unhealthy {
		t.Errorf("an LPU of which nothing is known is %s", got)
	}
}

// TestInvariant14OfTwoInstances: one that starts while a card is being reset sends what the other one knows.
func TestInvariant14OfTwoInstances(t *testing.T) {
	r, k, _ := served(t, rules137)
	next := orion(t)
	server := &Server{Plugin: next.plugin, Dir: k.dir}
	next.plugin.Node.Recall = server.Recall
	sick := changed(r.inventory(), func(lpus []discovery.LPU) { lpus[2].Health = discovery.HealthUnknown })
	next.plugin.Update(t.Context(), found(sick))
	if got := healthOf(next.devices(), orionIDs[2]); got != api.Healthy || !next.plugin.listed() {
		t.Errorf("%s, listed: %t", got, next.plugin.listed())
	}
}

// TestTextLogShowsNoAddress: each decision is logged with values.
func TestTextLogShowsNoAddress(t *testing.T) {
	r := orion(t)
	r.scan()
	for _, cards := range [][]int{{0}, {0, 1}, {0, 2}} {
		if _, err := r.prefer(int32(len(cards)), nil, ids(cards...)...); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"true", "true", "false"} {
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		if line := lines[len(lines)-3+i]; !strings.Contains(line, fmt.Sprintf(`"connected":%s,`, want)) {
			t.Errorf("no %s in %s", want, line)
		}
	}
}
