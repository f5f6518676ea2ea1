package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/top"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// lookOnce looks at the machine once, as list does.
func lookOnce(ctx context.Context, a *app) (*top.Look, error) {
	inv, memory, err := a.ScanOnly(ctx, discovery.Options{})
	if err != nil {
		return nil, err
	}
	of, err := a.Pods(memory)
	if err != nil {
		return nil, err
	}
	inv = lease.MarkOrWarn(a.Log, a.Root, memory.Dir, inv.WithCordons(memory.Cordons().Read()))
	node.FindUsers(ctx, a.Root, inv)
	now := time.Now()
	readings := map[pci.Address]*top.Readings{}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if r := top.OwnReadings(l, now); r != nil {
			readings[l.Address] = r
		}
	}
	return named(a, top.New(inv, readings, inPods(ctx, of), now, host.SinceBoot())), nil
}

// named adds the name of the host to a look, if it is one at this host.
func named(a *app, look *top.Look) *top.Look {
	if name, err := os.Hostname(); err == nil && a.Root == "/" {
		look.Node = name
	}
	return look
}

// kubeletPatience is how long the kubelet has to say which pods have LPUs.
const kubeletPatience = time.Second

// inPods returns which pods have which LPUs, as far as this user may know: who may not ask
// the kubelet or read the records of claims sees the processes of the pods all the same.
func inPods(ctx context.Context, of *pods.Node) map[pci.Address]string {
	ctx, cancel := context.WithTimeout(ctx, kubeletPatience)
	defer cancel()
	holders, _ := of.Holders(ctx)
	return holders
}

// slowly is how often is looked at what costs more than the LPUs themselves: processes,
// pods, and the metrics of another program.
const slowly = 5 * time.Second

// looker looks at one machine again and again.
type looker struct {
	app     *app
	watcher *watch.Watcher
	memory  node.Memory
	cordons *health.CordonFile
	pods    *pods.Node
	metrics string // address of another program's metrics; "": none
	client  http.Client

	slow    time.Time // when it was looked last at what costs more
	said    *top.Said // the latest metrics; nil if there are none that are fresh
	use     map[pci.Address]discovery.Use
	holders map[pci.Address]string
	read    map[pci.Address]ownReadings
}

// ownReadings are what was read here of the sensors of an LPU.
type ownReadings struct {
	of       *health.Sensors
	readings *top.Readings
}

// newLooker returns what looks at the machine of an app.
func newLooker(a *app, metrics string) (*looker, error) {
	scan, memory, err := a.Remembering(discovery.Options{})
	if err != nil {
		return nil, err
	}
	of, err := a.Pods(memory)
	if err != nil {
		return nil, err
	}
	return &looker{
		app: a, memory: memory, cordons: memory.Cordons(), pods: of, metrics: metrics,
		watcher: watch.New(string(a.Root), watch.Options{Scan: scan, Patience: watch.Patience}, host.SinceBoot),
		// No proxy: the address is this machine's.
		client: http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		use:    map[pci.Address]discovery.Use{}, read: map[pci.Address]ownReadings{},
	}, nil
}

// look looks once more. The first look reads the sensors in any case, because only they
// say what their limits are.
func (k *looker) look(ctx context.Context) (*top.Look, error) {
	now := time.Now()
	slow := now.Sub(k.slow) >= slowly
	if slow {
		k.slow = now
		k.said = k.listen(ctx, now)
		k.watcher.LeaveSensors(k.said != nil && len(k.read) > 0)
	}
	inv, err := k.watcher.Scan(ctx)
	if err != nil {
		return nil, err
	}
	inv = inv.WithCordons(k.cordons.Read())
	// What cannot be read of leases is shown as none; list says so.
	inv, _ = lease.MarkNow(k.app.Root, k.memory.Dir, inv)
	if slow {
		k.lookWho(ctx, inv)
	}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		l.Use = k.use[l.Address]
	}
	return named(k.app, top.New(inv, k.readings(inv, now), k.holders, now, host.SinceBoot())), nil
}

// lookWho looks who has the LPUs of an inventory, which is a copy.
func (k *looker) lookWho(ctx context.Context, inv *discovery.Inventory) {
	problems := inv.Problems
	node.FindUsers(ctx, k.app.Root, inv)
	inv.Problems = problems
	for i := range inv.LPUs {
		k.use[inv.LPUs[i].Address] = inv.LPUs[i].Use
	}
	k.holders = inPods(ctx, k.pods)
}

// readings are what sensors said last: by another program's metrics, or as read here.
func (k *looker) readings(inv *discovery.Inventory, now time.Time) map[pci.Address]*top.Readings {
	all := map[pci.Address]*top.Readings{}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		own := k.read[l.Address]
		if sensors := l.Reading.Sensors; sensors != nil && sensors != own.of {
			own = ownReadings{sensors, top.OwnReadings(l, now)}
			k.read[l.Address] = own
		}
		if k.said != nil {
			if r := k.said.Readings(l, own.readings); r != nil {
				all[l.Address] = r
				k.said.Judge(l)
				continue
			}
		}
		if l.Reading.Sensors != nil && own.readings != nil {
			all[l.Address] = own.readings
		}
	}
	return all
}

// metricsMost is how many bytes of metrics are read: a hundred times as many as those of
// a node with eight LPUs have.
const metricsMost = 4 << 20

// listen returns what the metrics of another program say; nil if there are none, or they
// are old.
func (k *looker) listen(ctx context.Context, now time.Time) *top.Said {
	if k.metrics == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(k.metrics); err != nil {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+k.metrics+"/metrics", nil)
	if err != nil {
		return nil
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil
	}
	said, err := top.ReadMetrics(http.MaxBytesReader(nil, response.Body, metricsMost))
	if err != nil || said == nil || now.Sub(said.At).Abs() > node.MaxAge {
		return nil
	}
	return said
}
