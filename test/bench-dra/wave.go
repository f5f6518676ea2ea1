package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const (
	// The pods ask for 1, 2, 4 and 8 LPUs in the mix 50, 25, 15 and 10 %. Twenty of them take 48.
	lpusOfMix = 48. / 20
	emptyWave = 0.10 // of all LPUs: what is asked for on nearly empty nodes
	fullWave  = 0.04 // ... and where fullShare are taken
	fullShare = 0.80
	refusals  = 20 // pods that fit nowhere
)

// share is how many pods of the mix ask for a share of all LPUs.
func (w *world) share(part float64) int {
	return max(20, int(float64(w.nodes*lpusOfServer)*part/lpusOfMix))
}

// shuffled are the sizes of n pods, in an order that depends on the seed. How many there are of each does not.
func shuffled(n int, seed uint64) (sizes []int) {
	sizes = slices.Concat(slices.Repeat([]int{2}, n/4), slices.Repeat([]int{4}, n*15/100), slices.Repeat([]int{8}, n/10))
	sizes = append(sizes, slices.Repeat([]int{1}, n-len(sizes))...)
	random := rand.New(rand.NewPCG(seed, 16)) //nolint:gosec // no secret
	random.Shuffle(n, func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

// wave is what came of some pods.
type wave struct {
	Pods     int     `json:"pods"`
	Refused  int     `json:"refused"`
	Attempts int     `json:"attempts"`
	CPU      float64 `json:"cpuSeconds"`  // of the scheduler
	Wall     float64 `json:"wallSeconds"` // from the first pod that was made to the last that was judged
}

// place makes claims, and then their pods, and waits until the scheduler has placed or refused each.
func (w *world) place(ctx context.Context, sizes []int) (*wave, error) {
	names := make([]string, len(sizes))
	for i := range sizes {
		names[i] = w.name()
	}
	if w.mode != plugin {
		if err := parallel(len(sizes), func(i int) error {
			_, err := w.ResourceV1().ResourceClaims(namespace).Create(ctx, w.claim(names[i], sizes[i]), metav1.CreateOptions{})
			return err
		}); err != nil {
			return nil, err
		}
	}
	if err := w.rest(ctx); err != nil {
		return nil, err
	}
	attempts, err := w.attempts(ctx)
	if err != nil {
		return nil, err
	}
	cpu, err := w.scheduler.cpu()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	made := make(chan error, 1)
	go func() {
		made <- parallel(len(sizes), func(i int) error {
			_, err := w.CoreV1().Pods(namespace).Create(ctx, w.pod(names[i], sizes[i]), metav1.CreateOptions{})
			return err
		})
	}()
	refused, err := w.judged(ctx, names)
	if err := errors.Join(err, <-made); err != nil {
		return nil, err
	}
	got := &wave{Pods: len(sizes), Refused: refused, Wall: time.Since(began).Seconds()}
	if err := w.rest(ctx); err != nil {
		return nil, err
	}
	cpuNow, err := w.scheduler.cpu()
	if err != nil {
		return nil, err
	}
	got.CPU = (cpuNow - cpu).Seconds()
	attemptsNow, err := w.attempts(ctx)
	got.Attempts = attemptsNow - attempts
	return got, err
}

// judged waits until each of the pods has a node or was refused one, and says how many were refused.
func (w *world) judged(ctx context.Context, names []string) (refused int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	waiting := map[string]bool{}
	for _, name := range names {
		waiting[name] = true
	}
	look := func(pod *corev1.Pod) {
		no := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
		if !waiting[pod.Name] || !no && pod.Spec.NodeName == "" {
			return
		}
		delete(waiting, pod.Name)
		if no {
			refused++
		}
	}
	// The API server may end a watch at any time.
	for len(waiting) > 0 {
		pods, err := w.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, fmt.Errorf("%d pods wait: %w", len(waiting), err)
		}
		for i := range pods.Items {
			look(&pods.Items[i])
		}
		events, err := w.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
		if err != nil {
			return 0, fmt.Errorf("%d pods wait: %w", len(waiting), err)
		}
		for len(waiting) > 0 {
			e, ok := <-events.ResultChan()
			if !ok {
				break
			}
			if pod, ok := e.Object.(*corev1.Pod); ok {
				look(pod)
			}
		}
		events.Stop()
	}
	return refused, nil
}

// refuse takes every second LPU of each node, and asks for what then fits nowhere: an arc of 4. Single devices and the plugin would give
// four that are not connected; they are asked for 8.
func (w *world) refuse(ctx context.Context) (*wave, error) {
	var all []taken
	for node := range w.nodes {
		t := taken{node: node}
		for i := 0; i < lpusOfServer; i += 2 {
			t.lpus = append(t.lpus, w.server.LPUs[i].Address)
		}
		all = append(all, t)
	}
	if err := w.take(ctx, all); err != nil {
		return nil, err
	}
	size := 8
	if w.mode == arcs {
		size = 4
	}
	got, err := w.place(ctx, slices.Repeat([]int{size}, refusals))
	if err == nil && got.Refused != refusals {
		err = fmt.Errorf("%d of %d pods were refused", got.Refused, refusals)
	}
	return got, err
}

// rounds places pods and deletes them again, several times.
func (w *world) rounds(ctx context.Context, n int, sizes func(round int) []int) (waves []*wave, err error) {
	before := w.made
	for i := range n {
		got, err := w.place(ctx, sizes(i))
		if err != nil {
			return nil, err
		}
		waves = append(waves, got)
		if err := errors.Join(w.check(ctx), w.clear(ctx, before)); err != nil {
			return nil, err
		}
	}
	return waves, nil
}

// play places pods as the scheduler does, each on one of the nodes with the fewest LPUs taken of those that it fits on, on the first free
// arc as published, until fullShare of the LPUs are taken. It says what they take, and the sizes of the pods that come after. Those that
// fit nowhere are left out. Each mode gets the same.
func (w *world) play() (all []taken, next []int) {
	published := arcsOf((&world{server: w.server, mode: arcs}).devices(0), w.server)
	busy := make([]uint, w.nodes)
	random := rand.New(rand.NewPCG(80, 16)) //nolint:gosec // no secret
	sum, lpus := 0, float64(w.nodes*lpusOfServer)
	for seed := uint64(1000); ; seed++ {
		for _, size := range shuffled(1000, seed) {
			order := random.Perm(w.nodes)
			slices.SortStableFunc(order, func(a, b int) int { return bits.OnesCount(busy[a]) - bits.OnesCount(busy[b]) })
			for _, node := range order {
				i := slices.IndexFunc(published, func(a arc) bool { return len(a.lpus) == size && a.mask&busy[node] == 0 })
				if i < 0 {
					continue
				}
				busy[node] |= published[i].mask
				if float64(sum) < fullShare*lpus {
					all = append(all, taken{node, published[i].lpus})
				} else {
					next = append(next, size)
				}
				sum += size
				break
			}
			if float64(sum) >= (fullShare+fullWave)*lpus {
				return all, next
			}
		}
	}
}

// arc is a device, and its LPUs as bits by their index.
type arc struct {
	lpus []pci.Address
	mask uint
}

func arcsOf(devices []resourceapi.Device, server *discovery.Inventory) []arc {
	all := make([]arc, len(devices))
	for i := range devices {
		all[i].lpus = dra.MembersOf(&devices[i])
		for k := range server.LPUs {
			if slices.Contains(all[i].lpus, server.LPUs[k].Address) {
				all[i].mask |= 1 << k
			}
		}
	}
	return all
}
