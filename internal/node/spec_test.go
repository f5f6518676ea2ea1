package node_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/long"
)

// world is a simulated machine and a node that follows it. Time passes only where a test says so.
type world struct {
	*testing.T
	root    string
	machine *simulate.Machine
	now     time.Time
}

// newWorld is a world of four cards whose CDI spec was written when the machine started, as the boot unit does it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, root: filepath.Join(t.TempDir(), "node"), now: time.Unix(1e9, 0)}
	machine, err := (simulate.Node{Profile: "orion", LPUs: 4}).Start(w.root)
	if err != nil {
		t.Fatal(err)
	}
	w.machine = machine
	w.refresh()
	return w
}

// must ends the test if a change of the machine failed.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) file() cdi.File {
	w.Helper()
	file, err := cdi.Locate(w.root, cdi.DefaultSpecDir, cdi.DefaultKind)
	w.must(err)
	return file
}

// scan is one scan as a command makes it.
func (w *world) scan() *discovery.Inventory {
	w.Helper()
	inv, err := discovery.Scan(w.Context(), w.root, discovery.Options{})
	w.must(err)
	return inv
}

// refresh writes the spec, as another program would.
func (w *world) refresh() {
	w.Helper()
	held, err := w.file().Hold(w.Context())
	w.must(err)
	defer held.Release()
	inv := w.scan()
	w.must(unwritten(cdi.SpecAndTables(w.file().Root, inv, cdi.Options{})))
	spec, _, err := cdi.Spec(inv, cdi.Options{})
	w.must(err)
	w.must(held.Write(spec))
}

// devices are those of the spec in place, by name; nil if there is none.
func (w *world) devices() map[string]specs.Device {
	w.Helper()
	data, err := w.file().Read()
	w.must(err)
	devices := map[string]specs.Device{}
	for _, d := range cdi.Devices(data) {
		devices[d.Name] = d
	}
	return devices
}

// right is what is wrong with the spec in place, compared with one made now; nil if nothing.
func (w *world) right() error {
	w.Helper()
	spec, _, err := cdi.Spec(w.scan(), cdi.Options{})
	w.must(err)
	if drift, err := w.file().Drift(w.scan(), spec); err != nil || drift.Any() {
		return fmt.Errorf("%s %w", &drift, err)
	}
	return nil
}

// program is one that follows the world, as serve does.
type program struct {
	*node.Node
	w       *world
	log     *bytes.Buffer
	watcher *watch.Watcher
}

func (w *world) program(env ...string) *program {
	w.Helper()
	p := &program{w: w, log: &bytes.Buffer{}}
	p.Node = node.New(slog.New(slog.NewTextHandler(p.log, nil)))
	p.Now, p.SinceBoot = func() time.Time { return w.now }, w.sinceBoot
	p.configure(env...)
	return p
}

// configure gives containers these variables besides.
func (p *program) configure(env ...string) {
	models := discovery.BuiltinModels()
	for i := range models {
		models[i].Env = append(models[i].Env, env...)
	}
	p.watcher = watch.New(p.w.root, watch.Options{Scan: discovery.Options{Models: models}}, p.w.sinceBoot)
}

func (w *world) sinceBoot() time.Duration { return time.Duration(w.now.UnixNano()) }

// update is what happens at each poll.
func (p *program) update() *node.Snapshot {
	p.w.Helper()
	s := p.Update(p.w.Context(), node.Spec{File: p.w.file()}, p.watcher.Scan)
	if s == nil {
		p.w.Fatal("no snapshot")
	}
	return s
}

// metric is the value of a sample, such as "lpuctl_spec_writes_total".
func (p *program) metric(sample string) string {
	p.w.Helper()
	var text bytes.Buffer
	p.w.must(node.WriteMetrics(&text, p.Metrics()...))
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (.*)$`).FindStringSubmatch(text.String())
	if match == nil {
		p.w.Fatalf("no sample %s in\n%s", sample, &text)
	}
	return match[1]
}

// unhealthy are the ids of the devices that are not healthy.
func unhealthy(s *node.Snapshot) string {
	var ids []string
	for _, d := range s.Devices {
		if !d.Healthy {
			ids = append(ids, d.ID)
		}
	}
	return strings.Join(ids, " ")
}

func (p *program) writes() string { p.w.Helper(); return p.metric("lpuctl_spec_writes_total") }

// TestSpecFollowsTheCards: the name of a card that is gone leaves the spec at the next look, and is back with the card. What has
// changed besides goes in by the same write.
func TestSpecFollowsTheCards(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.update()
	w.must(w.machine.Unplug(2))
	w.must(w.machine.Renumber(3, simulate.Numbers{Major: 226, Minor: 190}))
	s := p.update()
	for name, d := range w.devices() {
		nodes := slices.Concat(d.ContainerEdits.DeviceNodes)
		if slices.ContainsFunc(nodes, func(n *specs.DeviceNode) bool { return n.Path == w.machine.Card(2).Node }) {
			t.Errorf("%s still has the node of the card that is gone", name)
		}
	}
	if _, there := w.devices()["lpu2"]; there {
		t.Error("lpu2 is still there")
	}
	if d := w.devices()["lpu3"]; len(d.ContainerEdits.DeviceNodes) != 1 || d.ContainerEdits.DeviceNodes[0].Path != "/dev/dri/renderD190" {
		t.Errorf("lpu3 is %+v", d.ContainerEdits)
	}
	if got := unhealthy(s); got != "pci-0000-45-00.1" || p.writes() != "1" {
		t.Errorf("unhealthy: %s; %s writes, want one", got, p.writes())
	}
	w.must(w.machine.Replug(2))
	for range 5 {
		w.now = w.now.Add(time.Second)
		s = p.update()
	}
	if err := w.right(); err != nil || health(s) != "HHHH" || p.writes() != "2" {
		t.Errorf("the card is back: %s, %s writes, %v", health(s), p.writes(), err)
	}
}

// TestSpecOfNoLPU: a file that would define nothing is removed, and made again.
func TestSpecOfNoLPU(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	for i := range w.machine.LPUs() {
		w.must(w.machine.Unbind(i))
	}
	p.update()
	if data, err := w.file().Read(); err != nil || data != nil || p.Ready() != nil {
		t.Errorf("%s, %v, ready: %v", data, err, p.Ready())
	}
	for i := range w.machine.LPUs() {
		w.must(w.machine.Bind(i))
	}
	p.update()
	if err := w.right(); err != nil {
		t.Error(err)
	}
}

// TestOtherDifferencesAreReported: mounts, variables and annotations are put right at the start and after Renew. In between they
// are told, once.
func TestOtherDifferencesAreReported(t *testing.T) {
	w := newWorld(t)
	hasFoo := func() bool {
		data, err := w.file().Read()
		w.must(err)
		return bytes.Contains(data, []byte("FOO=bar"))
	}
	p := w.program("FOO=bar")
	p.update()
	if !hasFoo() || p.writes() != "1" {
		t.Errorf("at the start: corrected: %t, %s writes", hasFoo(), p.writes())
	}
	data, err := w.file().Read()
	w.must(err)
	w.must(os.WriteFile(w.file().Path, bytes.ReplaceAll(data, []byte("FOO=bar"), []byte("FOO=foo")), 0o600))
	const other = `lpuctl_spec_drift{differs="other"}`
	for range 3 {
		w.now = w.now.Add(2 * time.Minute)
		if s := p.update(); health(s) != "HHHH" {
			t.Errorf("a variable makes %s", health(s))
		}
	}
	if hasFoo() || p.writes() != "1" || p.metric(other) != fmt.Sprint(len(w.devices())) {
		t.Errorf("later: corrected: %t, %s writes, drift %s", hasFoo(), p.writes(), p.metric(other))
	}
	if n := strings.Count(p.log.String(), "not the one that would be made now"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, p.log)
	}
	p.Renew()
	p.update()
	if !hasFoo() || p.writes() != "2" || p.metric(other) != "0" || strings.Count(p.log.String(), "is the one that would be made now") != 1 {
		t.Errorf("after Renew: corrected: %t, %s writes, drift %s; log:\n%s", hasFoo(), p.writes(), p.metric(other), p.log)
	}
}

// TestAnnotationsAreRenewed: containers do not get them, but who asks for them in the config wants to see them.
func TestAnnotationsAreRenewed(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	for _, want := range []string{"0", "1", "1"} {
		p.Renew()
		p.Update(t.Context(), node.Spec{File: w.file(), Options: cdi.Options{Kind: cdi.DefaultKind, Annotations: want == "1"}}, p.watcher.Scan)
		if p.writes() != want {
			t.Errorf("%s writes, want %s", p.writes(), want)
		}
	}
	if w.devices()["lpu0"].Annotations["lpuctl.hyperaccel.ai/address"] != "0000:43:00.1" {
		t.Errorf("%v", w.devices()["lpu0"].Annotations)
	}
}

// TestRenewIsNotForgotten: a reload that comes when the spec was written twice within the minute holds when that is over.
func TestRenewIsNotForgotten(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.update()
	for range 2 { // another one removes the file
		w.must(os.Remove(w.file().Path))
		p.update()
	}
	p.configure("FOO=bar")
	p.Renew()
	p.update()
	if p.writes() != "2" {
		t.Errorf("%s writes within a minute", p.writes())
	}
	for range 61 {
		w.now = w.now.Add(time.Second)
		p.update()
	}
	data, err := w.file().Read()
	w.must(err)
	if p.writes() != "3" || !bytes.Contains(data, []byte("FOO=bar")) {
		t.Errorf("after a minute: %s writes, and\n%s", p.writes(), data)
	}
}

// TestACardThatFlaps: the file is written at most twice within a minute. Meanwhile the name of a card that is gone may stay: its node
// is not there either, so that no container starts with it. Where /dev cannot be seen, such a name leaves at once. With the race detector
// it flaps as fast as it can only.
func TestACardThatFlaps(t *testing.T) {
	for i, period := range []int{1, 29, 59} {
		if !long.Takes(i, 1) {
			continue
		}
		w := newWorld(t)
		p := w.program()
		p.update()
		var recent []time.Time // writes
		for second := range 240 {
			w.now = w.now.Add(time.Second)
			gone := second/period%2 == 0
			if second%period == 0 && gone {
				w.must(w.machine.Unplug(2))
			} else if second%period == 0 {
				w.must(w.machine.Replug(2))
			}
			before := p.writes()
			p.update()
			recent = slices.DeleteFunc(recent, func(at time.Time) bool { return w.now.Sub(at) >= time.Minute })
			_, there := w.devices()["lpu2"]
			if there && gone && (len(recent) < 2 || !w.machine.DeviceNodes()) {
				t.Fatalf("period %d, second %d: the name of a card that is gone", period, second)
			}
			if p.writes() != before {
				recent = append(recent, w.now)
			}
			if len(recent) > 2 && w.machine.DeviceNodes() {
				t.Errorf("period %d, second %d: %d writes within a minute", period, second, len(recent))
			}
		}
	}
}

// TestCardsThatFlapTogether: that one card comes and goes keeps no other from leaving the spec and coming back at once.
func TestCardsThatFlapTogether(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.update()
	for _, card := range []int{0, 1, 2} {
		for _, here := range []bool{false, true} {
			change := w.machine.Unplug
			if here {
				change = w.machine.Replug
			}
			w.must(change(card))
			for range 5 {
				w.now = w.now.Add(time.Second)
				p.update()
			}
			if _, there := w.devices()[fmt.Sprint("lpu", card)]; there != here {
				t.Fatalf("lpu%d is in the spec: %t, want %t", card, there, here)
			}
		}
	}
	if p.writes() != "6" {
		t.Errorf("%s writes", p.writes())
	}
}

// TestTwoProgramsThatDisagree write at most twice within a minute, and a swap of two nodes is corrected at once nevertheless.
func TestTwoProgramsThatDisagree(t *testing.T) {
	w := newWorld(t)
	a, b := w.program(), w.program("FOO=bar")
	for range 120 {
		w.now = w.now.Add(time.Second)
		a.update()
		b.update()
	}
	if a.writes() != "0" || b.writes() != "1" {
		t.Errorf("%s and %s writes", a.writes(), b.writes())
	}
	for round := range 6 { // another one removes the file again and again
		_ = os.Remove(w.file().Path)
		a.update()
		if want := fmt.Sprint(min(round+1, 2)); a.writes() != want {
			t.Errorf("round %d: %s writes, want %s", round, a.writes(), want)
		}
	}
	w.refresh()
	before := w.devices()["lpu0"].ContainerEdits.DeviceNodes[0].Path
	w.must(w.machine.SwapNodes(0, 1))
	a.update()
	if err := w.right(); err != nil || a.writes() != "3" || w.devices()["lpu0"].ContainerEdits.DeviceNodes[0].Path == before {
		t.Errorf("a swap in the same minute: %s writes, %v", a.writes(), err)
	}
}

// state is what tells that a file was written: its inode and the time of its last change. Of health.json it is the inode only, because
// serve renews its time to show that it runs.
func (w *world) state(dirs ...string) (states []string) {
	w.Helper()
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		w.must(err)
		for _, e := range entries {
			var st unix.Stat_t
			w.must(unix.Lstat(filepath.Join(dir, e.Name()), &st))
			if e.Name() == "health.json" {
				st.Ctim = unix.Timespec{}
			}
			states = append(states, fmt.Sprint(dir, e.Name(), st.Ino, st.Ctim))
		}
	}
	return states
}

// TestAtRestNothingIsWritten: no file of the spec's directory and of the state's changes, not even the lock.
func TestAtRestNothingIsWritten(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.remember()
	p.update()
	dirs := []string{filepath.Dir(w.file().Path), p.Memory.Dir}
	before := w.state(dirs...)
	if len(before) != 4 { // spec, lock, health, cabling
		t.Errorf("%v", before)
	}
	for range 100 {
		w.now = w.now.Add(time.Second)
		p.update()
	}
	if after := w.state(dirs...); !slices.Equal(before, after) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// TestAFileOfYesterday: who has a name that leads to another LPU's node by another file is
// withheld, in the order in which the runtime reads the directories, until the file is gone.
func TestAFileOfYesterday(t *testing.T) {
	w := newWorld(t)
	w.refresh()
	p := w.program()
	dirs := []string{"/etc/cdi", cdi.DefaultSpecDir}
	update := func(reversed bool) *node.Snapshot {
		order := cdi.Order{Runtime: "containerd 2.4.0", Library: "1.1.1", Dirs: slices.Clone(dirs)}
		if reversed {
			slices.Reverse(order.Dirs)
		}
		return p.Update(t.Context(), node.Spec{File: w.file(), Orders: []cdi.Order{order}}, p.watcher.Scan)
	}
	lpus := w.scan().LPUs
	old := filepath.Join(w.root, "etc/cdi/old.json")
	yesterday := func(name string) string {
		return fmt.Sprintf(`{"cdiVersion": "0.3.0", "kind": "hyperaccel.ai/lpu", "devices": [`+
			`{"name": %q, "containerEdits": {"deviceNodes": [{"path": %q}]}}]}`, name, lpus[2].Nodes[0].Path)
	}
	w.must(os.MkdirAll(filepath.Dir(old), 0o755))
	for _, step := range []struct {
		text     string
		reversed bool
		want     string // who is unhealthy
	}{
		{"", false, ""},
		{yesterday("lpu1"), false, ""}, // nobody gets it
		{yesterday("lpu1"), true, cdi.AddressName(lpus[1].Address)},
		{yesterday("lpu2"), true, ""}, // as it should be
		{yesterday(cdi.AddressName(lpus[0].Address)), true, cdi.AddressName(lpus[0].Address)},
		{yesterday(cdi.AddressName(lpus[0].Address)), false, ""},
		{yesterday("lpu0"), true, cdi.AddressName(lpus[0].Address)},
		{"", true, ""},
	} {
		if have, _ := os.ReadFile(old); string(have) != step.text { // the order alone may change
			w.must(os.RemoveAll(old))
			if step.text != "" {
				w.must(os.WriteFile(old, []byte(step.text), 0o644))
			}
		}
		s := update(step.reversed)
		if got := unhealthy(s); got != step.want {
			t.Fatalf("%q, reversed %v: unhealthy is %q, want %q", step.text, step.reversed, got, step.want)
		}
		for _, d := range s.Devices {
			if !d.Healthy && (!strings.Contains(d.Reason(), old) || !strings.Contains(d.Reason(), "the node of lpu2")) {
				t.Errorf("%s: %q does not say which file leads to which LPU", d.Name, d.Reason())
			}
		}
	}
	if got := p.writes(); got != "0" {
		t.Errorf("our file was written %s times", got)
	}
}

// TestAConflictComesAndGoes: while another file defines a name, runtimes refuse it. It may also be a link to a file elsewhere.
func TestAConflictComesAndGoes(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	other, target := filepath.Join(filepath.Dir(w.file().Path), "other.json"), filepath.Join(w.root, "other.json")
	spec := func(device string) []byte {
		return []byte(`{"cdiVersion": "0.3.0", "kind": "hyperaccel.ai/lpu", "devices": [{"name": "` + device +
			`", "containerEdits": {"env": ["A=B"]}}]}`)
	}
	look := func(what, want string) {
		t.Helper()
		if got := unhealthy(p.update()); got != want || (p.Ready() == nil) != (want == "") {
			t.Errorf("%s: unhealthy: %q, want %q; ready: %v", what, got, want, p.Ready())
		}
	}
	look("alone", "")
	w.must(os.WriteFile(other, spec("pci-0000-44-00.1"), 0o600))
	look("another file defines lpu1", "pci-0000-44-00.1")
	look("still", "pci-0000-44-00.1")
	w.must(os.WriteFile(other, spec("pci-0000-46-00.1"), 0o600))
	look("now lpu3", "pci-0000-46-00.1")
	w.must(os.Remove(other))
	look("it is gone", "")
	w.must(os.WriteFile(target, spec("something-else"), 0o600))
	w.must(os.Symlink(target, other))
	look("a link to a harmless file", "")
	w.must(os.WriteFile(target, spec("pci-0000-44-00.1"), 0o600))
	look("what it leads to is edited", "pci-0000-44-00.1")
	w.must(os.Remove(target))
	look("it leads nowhere", "")
	if p.writes() != "0" {
		t.Errorf("%s writes", p.writes())
	}
}

// TestNumbersThatChangeUnderAName: the spec says the paths of nodes only, but runtimes remember the numbers until it is written.
func TestNumbersThatChangeUnderAName(t *testing.T) {
	w := &world{T: t, root: filepath.Join(t.TempDir(), "node"), now: time.Unix(1e9, 0)}
	machine, err := (simulate.Node{Profile: "lpu", LPUs: 2}).Start(w.root)
	w.must(err)
	w.machine = machine
	w.refresh()
	p := w.program()
	p.update()
	p.update()
	for i, want := range []string{"1", "2", "3"} { // every time, because it could be another card's number
		w.must(machine.Renumber(1, simulate.Numbers{Major: 411, Minor: uint32(i)}))
		s := p.update()
		if p.writes() != want || unhealthy(s) != "" {
			t.Errorf("%s writes, want %s; unhealthy: %s", p.writes(), want, unhealthy(s))
		}
		p.update()
	}
	if p.writes() != "3" {
		t.Errorf("at rest: %s writes", p.writes())
	}
	if !machine.DeviceNodes() {
		return // their times tell what changed while no program ran
	}
	time.Sleep(10 * time.Millisecond) // more than what the times of files are rounded to
	w.must(machine.Renumber(1, simulate.Numbers{Major: 411, Minor: 9}))
	for _, want := range []string{"1", "0"} { // it changed while no program ran: written by the next one, and by no other
		p := w.program()
		p.update()
		p.update()
		if p.writes() != want {
			t.Errorf("at a later start: %s writes, want %s", p.writes(), want)
		}
	}
}

// TestAnotherKindWithoutLPUs: a change of the kind is a change of the file, though the spec to write is none before and after.
func TestAnotherKindWithoutLPUs(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	file, err := cdi.Locate(w.root, cdi.DefaultSpecDir, "example.com/lpu")
	w.must(err)
	held, err := file.Hold(t.Context())
	w.must(err)
	w.must(unwritten(cdi.SpecAndTables(w.file().Root, w.scan(), cdi.Options{})))
	spec, _, err := cdi.Spec(w.scan(), cdi.Options{Kind: "example.com/lpu"})
	w.must(err)
	w.must(held.Write(spec))
	held.Release()
	none := func(context.Context) (*discovery.Inventory, error) { return &discovery.Inventory{}, nil }
	p.Update(t.Context(), node.Spec{File: w.file()}, none)
	p.Update(t.Context(), node.Spec{File: w.file()}, none) // which notes that there is none
	p.Update(t.Context(), node.Spec{File: file, Options: cdi.Options{Kind: "example.com/lpu"}}, none)
	if data, err := file.Read(); data != nil || err != nil {
		t.Errorf("the file of the other kind is still there (%v)", err)
	}
}
