package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/test/libraries"
	"github.com/hyperaccel/lpuctl/test/long"
)

// A world is a node that changes while lpuctl works on it: refreshes, serve, and an adversary who takes cards, moves nodes, breaks the
// ring table, edits specs, changes the config, and kills and restarts serve. The world itself is the model: it knows what is true,
// because it made it so. After each step it comes to rest, and then what lpuctl has written and would hand out must be true.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	root    string
	machine *simulate.Machine
	alone   *sync.RWMutex // held for reading in each step; for writing while no other world may take one
	now     time.Time     // the clock of serve

	serve   *servant
	ring    string       // "good", "broken"
	foreign string       // a file of another program that defines lpu0 too; "": there is none
	turned  bool         // the runtime prefers /etc/cdi to the directory of our file
	library string       // release of the CDI library of the runtime; "": none is installed
	config  int          // number of the config file in place
	cordons map[int]bool // the LPUs that are cordoned, as far as serve knows
	cut     bool         // the file with the cordons is not whole
	renewed bool         // serve has started or reloaded since the last change of what it only reports otherwise
	steps   []string
	count   map[string]int // of what there was, so that a world in which nothing happens is seen

	claims     map[int]*claimed
	claimsMade int
	leases     map[int]bool // LPUs that a user has leased
	// leasesCut: the file that says which is not whole; leasesUnknown: serve has started since.
	leasesCut, leasesUnknown bool

	leftover  string // a copy of our spec that nothing renews; "": there is none
	former    []byte // our spec, as it was when something was left over last
	libraries []*libraries.Release
	said      answers
	judged    string // what validate has judged last
	stirred   bool   // the node may be another one since
	parsed    map[string]*specs.Spec
}

// servant is a running serve, but for what registers with the kubelet.
type servant struct {
	plugin  *plugin.Plugin
	watcher *watch.Watcher
	config  int // that it has read
}

const worldLPUs = 4

// newWorld is a whole node that nobody looks at yet.
func newWorld(t *testing.T, r *rand.Rand) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "world") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, rand: r, root: filepath.Join(dir, "node"), alone: &sync.RWMutex{}, now: time.Now(), ring: "good",
		cordons: map[int]bool{}, count: map[string]int{},
		claims: map[int]*claimed{}, leases: map[int]bool{}, libraries: libraries.Start(t), parsed: map[string]*specs.Spec{}}
	if w.machine, err = (simulate.Node{Profile: "orion", LPUs: worldLPUs}).Start(w.root); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) sinceBoot() time.Duration { return time.Duration(w.now.UnixNano()) }

// start starts serve, as after a kill: it knows what is on disk.
func (w *world) start() {
	options, watched := w.options()
	var err error
	clock := func() time.Time { return w.now }
	s := &servant{plugin.New(options, slog.New(slog.DiscardHandler)), watch.New(w.root, watched, w.sinceBoot), w.config}
	s.plugin.Node.Now, s.plugin.Node.Gate = clock, w.gate()
	if s.plugin.Node.Memory, err = node.RememberIn(host.Root(w.root)); err != nil {
		w.t.Fatal(err)
	}
	w.serve, w.renewed, w.leasesUnknown = s, true, w.leasesCut
	w.forgetCordons()
}

// options are those of the plugin and of its watcher, by the config file in place.
func (w *world) options() (plugin.Options, watch.Options) {
	a := w.app()
	file, err := a.LocateSpec()
	if err != nil {
		w.t.Fatal(err)
	}
	scan, err := a.ScanOptions(discovery.Options{})
	var memory node.Memory
	if err == nil {
		scan, memory, err = a.Remembering(scan)
	}
	scan.CardDeadline = time.Minute // no card hangs here, and the machine may be busy
	watched := watch.Options{Scan: scan}
	if err == nil {
		watched.Records, err = memory.Records()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return plugin.Options{
		Strategy: plugin.CDI, NUMA: plugin.NUMAOff,
		Spec: node.Spec{File: file, Options: cdi.Options{Kind: a.Config.CDI.Kind}, Orders: cli.SpecOrders(w.t.Context(), a.Root)},
	}, watched
}

func noEnvironment(string) (string, bool) { return "", false }

// reload is SIGHUP.
func (w *world) reload() {
	options, watched := w.options()
	w.serve.plugin.Reload(w.t.Context(), options)
	if w.serve.config != w.config {
		w.serve.watcher = watch.New(w.root, watched, w.sinceBoot)
		w.serve.config = w.config
		w.serve.plugin.Renew()
	}
	w.renewed = true
}

// lpuctl runs a one-shot command, and returns its exit code and what it prints.
func (w *world) lpuctl(args ...string) (code int, printed string) {
	var out bytes.Buffer
	code = run(w.t.Context(), append([]string{"--root", w.root}, args...), &out, &out, noEnvironment)
	return code, out.String()
}

// look is what serve does again and again. It returns false if the machine cannot be read.
func (w *world) look() bool {
	w.serve.plugin.Node.Gate.Renew(w.t.Context())
	return w.serve.plugin.Update(w.t.Context(), w.serve.watcher.Scan)
}

// rest lets time pass until nothing is in its grace and serve has looked often enough.
func (w *world) rest() {
	for range 3 {
		w.now = w.now.Add(41 * time.Second)
		w.look()
	}
}

// usable tells whether an LPU can be handed out: its card is there and has its driver.
func (w *world) usable(i int) bool {
	c := w.machine.Card(i)
	return c.Plugged && c.Bound
}

// dead tells whether a card reads as all ones. It keeps its name in the spec, because it may be in a reset.
func (w *world) dead(i int) bool {
	width, err := os.ReadFile(w.width(i)) // a card that is not plugged in has none
	return err == nil && string(width) == "63\n"
}

func (w *world) width(i int) string {
	return filepath.Join(w.root, w.machine.Card(i).Dir, "current_link_width")
}

// answer lets a card read as all ones, or answer again.
func (w *world) answer(i int, answers bool) bool {
	if !w.machine.Card(i).Plugged || w.dead(i) != answers {
		return false
	}
	width := "63\n"
	if answers {
		width = "16\n"
	}
	if err := os.WriteFile(w.width(i), []byte(width), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// isNode tells whether a path is the node of an LPU that can be used.
func (w *world) isNode(path string) bool {
	for i := range worldLPUs {
		if w.usable(i) && w.machine.Card(i).Node == path {
			return true
		}
	}
	return false
}

// action is something that the adversary or an administrator does. It returns false if it cannot be done now.
type action struct {
	name string
	do   func(w *world) bool
}

// hardware are the actions that change cards and the ring table.
var hardware = []action{
	{"unplug", func(w *world) bool { return w.machine.Unplug(w.rand.IntN(worldLPUs)) == nil }},
	{"replug", func(w *world) bool { return w.machine.Replug(w.rand.IntN(worldLPUs)) == nil }},
	{"unbind", func(w *world) bool { return w.machine.Unbind(w.rand.IntN(worldLPUs)) == nil }},
	{"bind", func(w *world) bool { return w.machine.Bind(w.rand.IntN(worldLPUs)) == nil }},
	{"swap", func(w *world) bool {
		i, j := w.rand.IntN(worldLPUs), w.rand.IntN(worldLPUs)
		return i != j && w.machine.SwapNodes(i, j) == nil
	}},
	{"renumber", func(w *world) bool {
		return w.machine.Renumber(w.rand.IntN(worldLPUs), simulate.Numbers{Major: 226, Minor: uint32(128 + w.rand.IntN(16))}) == nil
	}},
	{"hide ids", func(w *world) bool {
		all := []string{"vendor", "device", "modalias", "uevent"}
		return w.machine.Hide(w.rand.IntN(worldLPUs), all[:1+w.rand.IntN(len(all))]...) == nil
	}},
	{"show ids", func(w *world) bool { return w.machine.Show(w.rand.IntN(worldLPUs)) == nil }},
	{"die", func(w *world) bool { return w.answer(w.rand.IntN(worldLPUs), false) }},
	{"revive", func(w *world) bool { return w.answer(w.rand.IntN(worldLPUs), true) }},
	{"ring table", func(w *world) bool { return w.changeRing() }},
}

var actions = slices.Concat(hardware, []action{
	{"cordon", func(w *world) bool { return w.cordon(w.rand.IntN(worldLPUs)) }},
	{"uncordon", func(w *world) bool { return w.uncordon(w.rand.IntN(worldLPUs)) }},
	{"cut cordons", func(w *world) bool { return w.cutCordons() }},
	// Until here they change the node, see nodeActions.
	{"edit", func(w *world) bool { return w.edit(w.rand.IntN(edits)) }},
	{"foreign file", func(w *world) bool { return w.toggleForeign() }},
	{"leftover", func(w *world) bool { return w.leaveOver() }},
	{"turn", func(w *world) bool { return w.turn() }},
	{"config", func(w *world) bool { return w.changeConfig() }},
	{"reload", func(w *world) bool { w.reload(); return true }},
	{"kill and start", func(w *world) bool { w.start(); return true }},
	{"refresh", func(w *world) bool { return w.runRefresh() }},
	{"few descriptors", func(w *world) bool { return w.runShort() }},
	{"claim", func(w *world) bool { return w.claim(w.rand.IntN(worldLPUs)) }},
	{"lose a file of a claim", func(w *world) bool { return w.loseClaim() }},
	{"lease", func(w *world) bool { return w.lease(w.rand.IntN(worldLPUs)) }},
	{"lose leases", func(w *world) bool { return w.loseLeases() }},
	{"hiccup", func(w *world) bool { return w.hiccup(w.rand.IntN(worldLPUs)) }},
})

// nodeActions is how many of the actions change the node. They come first.
const nodeActions = 14

// hiccup holds a card offline for a moment, as a reset does. Meanwhile the kubelet takes it for healthy, and it cannot be handed out.
func (w *world) hiccup(i int) bool {
	if !w.usable(i) || w.dead(i) || w.conflict() {
		return false
	}
	offline := filepath.Join(w.root, w.machine.Card(i).Dir, "dev_offline")
	if err := os.WriteFile(offline, []byte("1\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	for range 2 {
		w.now = w.now.Add(time.Second)
		w.look()
	}
	if err := errors.Join(w.checkSpec(), w.checkList(w.listed())); err != nil { // neither follows a fault that may pass
		w.fail("LPU %d is offline: %v", i, err)
	}
	if healthy := w.offered(); len(healthy) > 1 {
		answer, err := w.serve.plugin.GetPreferredAllocation(w.t.Context(), preference(len(healthy)-1, w.ids()))
		if err != nil {
			w.fail("no %d of %v LPUs while LPU %d is offline: %v", len(healthy)-1, healthy, i, err)
		}
		if chosen := answer.ContainerResponses[0].DeviceIDs; slices.Contains(chosen, w.ids()[i]) {
			w.fail("%v is preferred while LPU %d is offline", chosen, i)
		}
	}
	if err := os.WriteFile(offline, []byte("0\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// ids are the ids of the devices of all LPUs.
func (w *world) ids() (all []string) {
	for i := range worldLPUs {
		all = append(all, cdi.AddressName(w.machine.Card(i).Address))
	}
	return all
}

func preference(size int, available []string) *api.PreferredAllocationRequest {
	return &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: available, AllocationSize: int32(size)}},
	}
}

// cordon cordons an LPU that is known on the node.
func (w *world) cordon(i int) bool {
	before := w.written("var/run/cdi")
	name := []string{fmt.Sprint("lpu", i), w.machine.Card(i).Address.String()}[w.rand.IntN(2)]
	switch code, printed := w.lpuctl("cordon", name, "--reason", "a test"); {
	case code == cli.ExitFailed && (strings.Contains(printed, "no LPU") || strings.Contains(printed, "indices of LPUs may be wrong")):
		return false
	case code != cli.ExitDone:
		w.fail("cordon: exit %d: %s", code, printed)
	}
	if w.cut {
		clear(w.cordons)
	}
	w.cordons[i], w.cut = true, false
	w.sameSpec(before)
	return true
}

// uncordon ends the cordon of an LPU, whether or not its card is there.
func (w *world) uncordon(i int) bool {
	if !w.cordons[i] && !w.cut {
		return false
	}
	before := w.written("var/run/cdi")
	if code, printed := w.lpuctl("uncordon", w.machine.Card(i).Address.String()); code != cli.ExitDone {
		w.fail("uncordon: exit %d: %s", code, printed)
	}
	if w.cut {
		clear(w.cordons)
	}
	delete(w.cordons, i)
	w.cut = false
	w.sameSpec(before)
	return true
}

// sameSpec wants serve not to write the spec because of a cordon.
func (w *world) sameSpec(before []string) {
	if w.serve != nil {
		w.look()
	}
	if after := w.written("var/run/cdi"); !slices.Equal(before, after) && w.serve != nil {
		w.fail("a cordon changes the spec:\n%v\n%v", before, after)
	}
}

// cutCordons leaves half of the file with the cordons. A serve that runs keeps to those that it has read.
func (w *world) cutCordons() bool {
	path := filepath.Join(w.root, "var/lib/lpuctl/cordon.json")
	info, err := os.Stat(path)
	if err != nil || w.cut {
		return false
	}
	w.cut = true
	return os.Truncate(path, info.Size()/2) == nil
}

// forgetCordons is what happens when serve starts and the file with the cordons is not whole.
func (w *world) forgetCordons() {
	if w.cut {
		clear(w.cordons)
	}
}

// checkCordons: who has a cordoned LPU keeps it, also through a restart, and nobody else gets it.
func (w *world) checkCordons() error {
	for _, i := range w.healthy() {
		id := w.ids()[i : i+1]
		_, got := w.serve.plugin.Allocate(w.t.Context(), &api.AllocateRequest{
			ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: id}},
		})
		_, restarted := w.serve.plugin.PreStartContainer(w.t.Context(), &api.PreStartContainerRequest{DevicesIds: id})
		wish := preference(1, id)
		wish.ContainerRequests[0].MustIncludeDeviceIDs = id
		_, kept := w.serve.plugin.GetPreferredAllocation(w.t.Context(), wish)
		if (got != nil) != (w.cordons[i] || w.held(i)) || restarted != nil || kept != nil {
			return fmt.Errorf("cordons %v: LPU %d: handed out: %w, restarted: %w, kept: %w", w.cordons, i, got, restarted, kept)
		}
	}
	return nil
}

const worldTable = "opt/hyperdex/hrt/xclbin/table.json"

// changeRing breaks the ring table, each time in another way, or mends it.
func (w *world) changeRing() bool {
	path, kept := filepath.Join(w.root, worldTable), filepath.Join(w.root, "table.good")
	if w.ring == "broken" {
		w.ring = "good"
		_ = os.Remove(path)
		return os.Rename(kept, path) == nil
	}
	w.ring = "broken"
	if err := os.Rename(path, kept); err != nil {
		w.t.Fatal(err)
	}
	good, err := os.ReadFile(kept)
	if err != nil {
		w.t.Fatal(err)
	}
	switch w.rand.IntN(4) {
	case 0:
		err = os.WriteFile(path, good[:len(good)/2], 0o644)
	case 1:
		err = os.WriteFile(path, bytes.Replace(good, []byte(`"num_device" : 4`), []byte(`"num_device" : 5`), 1), 0o644)
	case 2:
		err = os.WriteFile(path, []byte(`{"network": [{"src_id": 0, "dst_id": 0, "direction": "Right"}], "num_device": 4}`), 0o644)
	case 3:
		err = errors.Join(os.WriteFile(path, good, 0o644), os.Chmod(path, 0o666))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return true
}

func (w *world) specPath() string { return filepath.Join(w.root, "var/run/cdi/hyperaccel.ai-lpu.json") }

// spec is the spec in place; nil if there is none.
func (w *world) spec() *specs.Spec {
	data, err := os.ReadFile(w.specPath())
	if err != nil {
		return nil
	}
	return w.parse(string(data))
}

// strayPrefix begins names that are not ours, but in our file.
const strayPrefix = "stray-"

const (
	wrongEdits = 3 // that make a name lead to a wrong node
	edits      = 7
)

// edit changes the spec in place as a careless administrator would. It returns false if it cannot be done now.
func (w *world) edit(kind int) bool {
	data, err := os.ReadFile(w.specPath())
	if err != nil {
		return false
	}
	text := string(data)
	a, b := w.machine.Card(w.rand.IntN(worldLPUs)).Node, w.machine.Card(w.rand.IntN(worldLPUs)).Node
	switch kind {
	case 0: // another card's node, the first time it is there
		if a == b || a == "" || !w.isNode(b) {
			return false
		}
		text = strings.Replace(text, `"path": "`+a+`"`, `"path": "`+b+`"`, 1+w.rand.IntN(3))
	case 1:
		if a == "" || !w.isNode(b) {
			return false
		}
		text = strings.Replace(text, `"path": "`+a+`"`, `"hostPath": "`+b+`", "path": "`+a+`"`, 1)
	case 3:
		text = text[:len(text)/2]
	case 4:
		text, w.renewed = strings.Replace(text, `"name": "pci-`, `"name": "`+strayPrefix, 1+w.rand.IntN(4)), false
	case 2: // for every container
		if !w.isNode(b) {
			return false
		}
		common := "\n  \"containerEdits\": {"
		text, w.renewed = strings.Replace(text, common, common+"\"deviceNodes\": [{\"path\": \""+b+"\"}],", 1), false
	case 5:
		return os.Remove(w.specPath()) == nil
	case 6:
		if !strings.Contains(text, "XILINX_XRT=/opt/xilinx/xrt") {
			return false
		}
		text, w.renewed = strings.Replace(text, "XILINX_XRT=/opt/xilinx/xrt", "XILINX_XRT=/edited", 1), false
	}
	if err := os.WriteFile(w.specPath(), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// changeConfig writes another config file. serve does not read it before a reload or a restart.
func (w *world) changeConfig() bool {
	w.config, w.renewed = (w.config+1)%3, false
	path := filepath.Join(w.root, "etc/lpuctl/config.yaml")
	if w.config == 0 {
		return os.Remove(path) == nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return os.WriteFile(path, fmt.Appendf(nil, "models: [{name: orion-u55c, env: [\"CONFIG=%d\"]}]\n", w.config), 0o644) == nil
}

// runRefresh runs what the boot unit runs.
func (w *world) runRefresh() bool {
	left := 0
	for i := range worldLPUs {
		if !w.usable(i) {
			left++
		}
	}
	code, printed := w.lpuctl("cdi", "refresh")
	switch {
	case w.conflict():
		if code != cli.ExitFailed || !strings.Contains(printed, "already defines") {
			w.fail("refresh beside another file with our names: exit %d: %s", code, printed)
		}
	case code == cli.ExitFailed:
		w.fail("refresh: exit %d: %s", code, printed)
	case left > 0 && code == cli.ExitDone:
		w.fail("refresh leaves %d LPUs out and ends with %d: %s", left, code, printed)
	}
	return true
}

// drifting tells whether a device of the spec in place has other variables than the config file says.
func (w *world) drifting() bool {
	want := "XILINX_XRT=/opt/xilinx/xrt"
	if w.config > 0 {
		want = fmt.Sprint("CONFIG=", w.config)
	}
	spec := w.spec()
	return spec != nil && slices.ContainsFunc(spec.Devices, func(d specs.Device) bool {
		return !slices.Contains(d.ContainerEdits.Env, want) || strings.HasPrefix(d.Name, strayPrefix)
	})
}

// step does one thing and comes to rest.
func (w *world) step() {
	w.alone.RLock()
	defer w.alone.RUnlock()
	for {
		i := w.rand.IntN(len(actions))
		if actions[i].do(w) {
			w.steps, w.stirred = append(w.steps, actions[i].name), w.stirred || i < nodeActions
			break
		}
	}
	w.rest()
	if err := w.check(); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	state := ""
	serve := 0
	if w.serve != nil {
		serve = w.serve.config
	}
	for i := range worldLPUs {
		state += fmt.Sprintf("  lpu%d %+v\n", i, w.machine.Card(i))
	}
	_, list := w.lpuctl("list")
	names := ""
	if spec := w.spec(); spec != nil {
		for _, d := range spec.Devices {
			names += " " + d.Name
		}
	}
	w.t.Fatalf("step %d: %s\nlast steps: %v\nring %s, foreign %q, left over %q, turned %v, library %q, config %d (serve %d), "+
		"renewed %v, cordons %v (cut: %v), claims %v, leases %v\n%s%sspec:%s",
		len(w.steps), fmt.Sprintf(format, args...), w.steps[max(0, len(w.steps)-12):],
		w.ring, w.foreign, w.leftover, w.turned, w.library, w.config, serve, w.renewed, w.cordons, w.cut, w.claims, w.leases, state, list, names)
}

// check holds what lpuctl has written and offers against what is true.
func (w *world) check() error {
	err := w.checkSpec()
	if err == nil && w.renewed && w.drifting() {
		err = errors.New("serve has started or reloaded, and the spec is not of its config")
	}
	if err == nil {
		err = w.checkList(w.listed())
	}
	if err == nil {
		err = w.checkChoices(w.offered())
	}
	if err == nil {
		err = w.checkCordons()
	}
	if err == nil {
		err = w.checkHolders()
	}
	if err == nil {
		err = w.checkValidate()
	}
	if err == nil {
		err = w.checkQuiet()
	}
	return err
}

// checkQuiet: serve at rest writes nothing.
func (w *world) checkQuiet() error {
	before := w.kept()
	w.now = w.now.Add(time.Second)
	w.look()
	if after := w.kept(); !slices.Equal(before, after) {
		return fmt.Errorf("serve writes at rest:\n%v\n%v", before, after)
	}
	return nil
}

// written are the files in directories, and when each was changed.
func (w *world) written(dirs ...string) (states []string) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(filepath.Join(w.root, dir)) // there may be none yet
		for _, e := range entries {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(w.root, dir, e.Name()), &st); err != nil {
				w.t.Fatal(err)
			}
			if e.Name() == "health.json" { // serve renews its time to show that it runs
				st.Ctim = unix.Timespec{}
			}
			states = append(states, fmt.Sprint(e.Name(), st.Ino, st.Ctim))
		}
	}
	return states
}

// lpusOf are the LPUs that a device of ours stands for.
func (w *world) lpusOf(name string) (lpus []int) {
	for i := range worldLPUs {
		indices := strings.Split(strings.TrimPrefix(name, "lpu"), "-")
		if name == cdi.AllDevice && w.usable(i) || name == cdi.AddressName(w.machine.Card(i).Address) ||
			strings.HasPrefix(name, "lpu") && slices.Contains(indices, fmt.Sprint(i)) {
			lpus = append(lpus, i)
		}
	}
	return lpus
}

// checkSpec: each device has the nodes of its LPUs and no other, each usable LPU is there, and so is each pair of neighbours.
func (w *world) checkSpec() error {
	spec, names := w.spec(), map[string]bool{}
	if spec == nil {
		spec = &specs.Spec{}
	}
	for _, d := range spec.Devices {
		var want, got []string
		for _, i := range w.lpusOf(d.Name) {
			if !w.usable(i) {
				return fmt.Errorf("the spec names %s, and LPU %d cannot be used", d.Name, i)
			}
			want = append(want, w.machine.Card(i).Node)
		}
		for _, n := range slices.Concat(spec.ContainerEdits.DeviceNodes, d.ContainerEdits.DeviceNodes) {
			if !slices.Contains(got, n.Path) {
				got = append(got, n.Path)
			}
			if n.HostPath != "" && n.HostPath != n.Path {
				return fmt.Errorf("%s has %s of the host at %s", d.Name, n.HostPath, n.Path)
			}
		}
		if strings.HasPrefix(d.Name, strayPrefix) { // it may stay as long as its node is that of an LPU
			want = slices.DeleteFunc(slices.Clone(got), func(path string) bool { return !w.isNode(path) })
		}
		slices.Sort(want)
		slices.Sort(got)
		if len(want) == 0 || !slices.Equal(want, got) {
			return fmt.Errorf("%s is %v, not %v", d.Name, got, want)
		}
		if err := w.checkTable(d); err != nil {
			return err
		}
		names[d.Name] = true
	}
	for i := range worldLPUs {
		for _, name := range []string{fmt.Sprint("lpu", i), cdi.AddressName(w.machine.Card(i).Address)} {
			if names[name] != w.usable(i) && !w.beside(name) {
				return fmt.Errorf("%s is in the spec: %v", name, names[name])
			}
		}
		next := (i + 1) % worldLPUs
		there := func(name string) bool { return names[name] || w.beside(name) && w.usable(i) && w.usable(next) }
		pair := there(fmt.Sprintf("lpu%d-%d", i, next)) || there(fmt.Sprintf("lpu%d-%d", next, i))
		if want := w.usable(i) && w.usable(next); pair != want {
			return fmt.Errorf("the neighbours lpu%d and lpu%d are in the spec: %v", i, next, pair)
		}
	}
	return nil
}

// checkTable: a device of LPUs mounts the ring table of these LPUs, and it is there.
func (w *world) checkTable(d specs.Device) error {
	if w.serve == nil || strings.HasPrefix(d.Name, "pci-") || strings.HasPrefix(d.Name, strayPrefix) {
		return nil // without it, serve is another process, and its inventory is not known here
	}
	want, got := cdi.RingTableOf(w.serve.plugin.Node.Latest().Inventory, w.lpusOf(d.Name)), ""
	for _, m := range d.ContainerEdits.Mounts {
		if m.ContainerPath == want.ContainerPath {
			got = m.HostPath
		}
	}
	if got != want.HostPath {
		return fmt.Errorf("%s has the ring table %q, not %s", d.Name, got, want.HostPath)
	}
	_, err := os.Stat(filepath.Join(w.root, got))
	return err
}

// listStream is the kubelet's end of ListAndWatch. It takes one list.
type listStream struct {
	grpc.ServerStream
	ctx  context.Context
	list []*api.Device
}

func (s *listStream) Context() context.Context { return s.ctx }

func (s *listStream) Send(r *api.ListAndWatchResponse) error {
	s.list = r.Devices
	return io.EOF
}

// listed is what the kubelet is told of each device.
func (w *world) listed() map[string]string {
	stream := &listStream{ctx: w.t.Context()}
	_ = w.serve.plugin.ListAndWatch(nil, stream)
	listed := map[string]string{}
	for _, d := range stream.list {
		listed[d.ID] = d.Health
	}
	return listed
}

// healthy are the LPUs that can be used, and that the specs name once.
func (w *world) healthy() (healthy []int) {
	spec, lost := w.spec(), w.lost()
	for i, id := range w.ids() {
		if slices.Contains(lost, id) || slices.Contains(lost, fmt.Sprint("lpu", i)) {
			continue
		}
		inSpec := spec != nil && slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return d.Name == id })
		if w.usable(i) && !w.dead(i) && inSpec && !w.beside(id) {
			healthy = append(healthy, i)
		}
	}
	return healthy
}

// offered are the LPUs that somebody new can get.
func (w *world) offered() []int {
	return slices.DeleteFunc(w.healthy(), func(i int) bool { return w.cordons[i] || w.held(i) })
}

// checkList: the kubelet is told of every LPU, and that just those are healthy that are and are not cordoned.
func (w *world) checkList(listed map[string]string) error {
	offered := w.offered()
	for i, id := range w.ids() {
		want := api.Unhealthy
		if slices.Contains(offered, i) {
			want = api.Healthy
		}
		if listed[id] != want {
			return fmt.Errorf("%s is listed as %q, not %s", id, listed[id], want)
		}
	}
	return nil
}

// checkChoices: what is preferred is handed out, and is connected where that is possible.
func (w *world) checkChoices(healthy []int) error {
	var free []string
	for _, i := range healthy {
		free = append(free, w.ids()[i])
	}
	for size := 1; size <= worldLPUs; size++ {
		answer, err := w.serve.plugin.GetPreferredAllocation(w.t.Context(), preference(size, w.ids()))
		if size > len(free) {
			if err == nil {
				return fmt.Errorf("%d LPUs were preferred of %d: %v", size, len(free), answer)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("no %d LPUs of %v: %w", size, free, err)
		}
		chosen := answer.ContainerResponses[0].DeviceIDs
		given, err := w.serve.plugin.Allocate(w.t.Context(), &api.AllocateRequest{
			ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: chosen}},
		})
		if err != nil || len(chosen) != size {
			return fmt.Errorf("%v were preferred for %d, and are not handed out: %w", chosen, size, err)
		}
		if connected := given.ContainerResponses[0].Envs["LPU_CONNECTED"]; connected != fmt.Sprint(size == 1 || hasArc(healthy, size)) {
			return fmt.Errorf("of %v %v were preferred, connected: %q", healthy, chosen, connected)
		}
	}
	return nil
}

// hasArc tells whether some LPUs of a ring include size neighbours.
func hasArc(lpus []int, size int) bool {
	for start := range worldLPUs {
		n := 0
		for n < size && slices.Contains(lpus, (start+n)%worldLPUs) {
			n++
		}
		if n == size {
			return true
		}
	}
	return false
}

// checkValidate: validate is silent exactly if nothing is wrong with the specs. Of what it judged in
// the step before it is not asked again, which takes long.
func (w *world) checkValidate() error {
	lost := w.lost()
	judged := fmt.Sprint(w.said.of, w.config, w.ring)
	if judged == w.judged && !w.stirred {
		return nil
	}
	w.judged, w.stirred = judged, false
	return thrice(func() error { return w.judgeValidate(lost) })
}

// thrice returns an error if something has one three times: a command takes a card for one that
// hangs if the machine is too busy to read it within a second.
func thrice(check func() error) (err error) {
	for range 3 {
		if err = check(); err == nil {
			return nil
		}
	}
	return err
}

func (w *world) judgeValidate(lost []string) error {
	code, printed := w.lpuctl("cdi", "validate")
	if w.leasesCut { // every command says so, and the specs have nothing to do with it
		printed = regexp.MustCompile("(?m)^.*who has leased LPUs is not known.*\n").ReplaceAllString(printed, "")
	}
	silent := code == cli.ExitDone && printed == ""
	if len(lost) > 0 && code != cli.ExitFound {
		return fmt.Errorf("%v lead to other LPUs, and validate ends with %d: %s", lost, code, printed)
	}
	if len(w.claims) > 0 || w.leftover != "" || filepath.Dir(w.foreign) == filepath.Join(w.root, "etc/cdi") {
		return nil // of which something may be said
	}
	spec, none := w.spec(), !slices.ContainsFunc([]int{0, 1, 2, 3}, w.usable)
	common := spec != nil && len(spec.ContainerEdits.DeviceNodes) > 0 // it harms nobody as long as all devices are of one LPU
	if want := w.foreign == "" && !w.drifting() && !common && !none; silent != want {
		return fmt.Errorf("validate says, with %d: %s", code, printed)
	}
	return nil
}

// TestAWorldThatChanges takes 100 steps, 10,000 in .ci/long.
func TestAWorldThatChanges(t *testing.T) {
	steps := long.Steps(t, 100)
	t.Logf("%d steps", steps)
	seed, alone := long.Rand(t).Uint64(), &sync.RWMutex{}
	for i := range uint64(2) {
		t.Run(fmt.Sprint("half ", i), func(t *testing.T) {
			t.Parallel()
			alone.RLock()
			w := newWorld(t, rand.New(rand.NewPCG(seed, i)))
			w.alone = alone
			w.start()
			w.rest()
			alone.RUnlock()
			for range steps / 2 {
				w.step()
			}
			t.Logf("in %d steps: %v", steps/2, w.count)
			for _, name := range []string{"lost names", "looks that failed", "commands that failed"} {
				if w.count[name] == 0 && steps >= 1_000 {
					t.Errorf("there was nothing of %q", name)
				}
			}
		})
	}
}
