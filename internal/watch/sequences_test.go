package watch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
	"github.com/hyperaccel/lpuctl/test/machines"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// bed is a simulated node on which many sequences are played, one after the other.
type bed struct {
	profile string
	root    string
	machine *simulate.Machine
	specs   map[string]string // the CDI spec by the nodes that there are
}

// sequence is one play: a watcher, the cards as they are, and the events that the kernel has still to tell.
type sequence struct {
	*bed
	t       *testing.T
	random  *rand.Rand
	began   time.Time
	watcher *watch.Watcher
	latest  *discovery.Inventory
	cards   []*modelCard
	late    [][]modelEvent // by the number of steps until they are told
	held    []*os.File     // directories that were removed: no other one gets their inodes as long as they are open
	played  []string
}

// modelEvent is one uevent of a card.
type modelEvent struct {
	card  int
	what  string // as modelCard.tell knows it
	event uevent.Event
}

func (s *sequence) now() time.Duration { return time.Hour + time.Since(s.began) }

func (s *sequence) say(format string, values ...any) {
	s.played = append(s.played, fmt.Sprintf(format, values...))
}

func (s *sequence) must(steps ...error) {
	s.t.Helper()
	if err := errors.Join(steps...); err != nil {
		s.t.Fatalf("%v\nplayed:\n%s", err, strings.Join(s.played, "\n"))
	}
}

// start starts serve, which goes on with what the one before remembered in its file.
func (s *sequence) start() {
	options := watch.Options{}
	if s.profile == "bertha" {
		options.Scan.Models = machines.Bertha()
	}
	if s.latest != nil {
		data, err := json.Marshal(s.latest.Records)
		s.must(err)
		s.must(json.Unmarshal(data, &options.Records))
		for _, l := range s.latest.LPUs {
			options.Scan.Seen = append(options.Scan.Seen, l.Address)
		}
	}
	s.watcher = watch.New(s.root, options, s.now)
	s.late = nil
	for _, c := range s.cards {
		c.told, c.off = c.kept, false
	}
}

// scans looks at the machine at these seconds from now on, as serve does; it does so more often, but then nothing has changed.
func (s *sequence) scans(seconds ...int) {
	s.t.Helper()
	begin := s.now()
	for _, at := range seconds {
		time.Sleep(begin + time.Duration(at)*time.Second - s.now())
		inv, err := s.watcher.Scan(s.t.Context())
		s.must(err)
		s.latest = inv
		synctest.Wait() // what is read beside the scan
		if n := len(inv.LPUs); n != len(s.cards) {
			s.t.Fatalf("%d LPUs\nplayed:\n%s", n, strings.Join(s.played, "\n"))
		}
	}
	for _, c := range s.cards {
		c.look(begin, s.now())
		c.unsure = c.unsure || c.changed
	}
}

// check looks until all has settled, and compares.
func (s *sequence) check() {
	s.t.Helper()
	s.say("a long look")
	s.scans(0, 1, 4, 11, 12, 22, 33)
	for i, c := range s.cards {
		l := &s.latest.LPUs[i]
		want, healthy := c.reasons(s.now())
		got := machines.Sorted(l.Reasons)
		if c.told.perhaps > 0 && c.told.rebound == 0 {
			got = strings.TrimSpace(strings.Replace(" "+got+" ", " rebound ", " ", 1))
		}
		state := health.Unhealthy
		if healthy {
			state = health.Healthy
		}
		if got != want || l.Health != state || l.Usable != healthy || l.Absent != (c.device == 0) ||
			l.Name != fmt.Sprint("lpu", i) || l.Address != s.machine.Card(i).Address {
			s.t.Errorf("lpu%d: %s, %q, want %s, %q; %s %s usable: %t, absent: %t\nplayed:\n%s", i, l.Health, got, state, want,
				l.Name, l.Address, l.Usable, l.Absent, strings.Join(s.played, "\n"))
		}
		c.healthy, c.changed, c.unsure = healthy, false, false
	}
	s.checkSpec()
}

// checkSpec: the CDI spec has each card that has a node, with this node, and no other. For the same nodes it is always the same.
func (s *sequence) checkSpec() {
	s.t.Helper()
	nodes := make([]string, len(s.cards))
	for i, c := range s.cards {
		if c.device != 0 && c.bound {
			nodes[i] = s.machine.Card(i).Node
		}
	}
	spec, _, err := cdi.Spec(s.latest, cdi.Options{})
	if slices.Max(nodes) == "" {
		if !errors.Is(err, cdi.ErrNoDevices) {
			s.t.Errorf("a spec without LPUs: %v\nplayed:\n%s", err, strings.Join(s.played, "\n"))
		}
		return
	}
	s.must(err)
	for i, want := range nodes {
		at := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == fmt.Sprint("lpu", i) })
		got := ""
		if at >= 0 {
			got = spec.Devices[at].ContainerEdits.DeviceNodes[0].Path
		}
		if got != want {
			s.t.Errorf("the spec has %q for lpu%d, want %q\nplayed:\n%s", got, i, want, strings.Join(s.played, "\n"))
		}
	}
	text, err := json.Marshal(spec)
	s.must(err)
	key := strings.Join(nodes, " ")
	if before, known := s.specs[key]; known && before != string(text) {
		s.t.Errorf("the spec changes:\n%s\n%s\nplayed:\n%s", before, text, strings.Join(s.played, "\n"))
	}
	s.specs[key] = string(text)
}

// events are those of a change of one card, such as "unbind". "node" is that of its node.
func (s *sequence) events(card int, words ...string) (all []modelEvent) {
	c := s.machine.Card(card)
	path := "/" + strings.TrimPrefix(c.Dir, "sys/")
	for _, word := range words {
		e := uevent.Event{Action: word, DevPath: path, Subsystem: "pci"}
		switch {
		case word == "node":
			e = uevent.Event{Action: "add", DevPath: path + "/class/" + filepath.Base(c.Node), Subsystem: "class", DevName: c.Node}
		case strings.HasSuffix(word, "_RECOVERY"):
			e.Action, e.ErrorEvent = "change", word
		}
		all = append(all, modelEvent{card, word, e})
	}
	return all
}

// deliver tells events: now, twice, later, or never.
func (s *sequence) deliver(events []modelEvent) {
	if len(events) == 0 {
		return
	}
	switch s.random.IntN(6) {
	case 0:
		s.say("  events are lost")
	case 1:
		s.say("  events are lost, and the kernel says so")
		s.watcher.Take(uevent.Event{Overflow: true})
	case 2:
		steps := 1 + s.random.IntN(2)
		s.say("  events come %d steps later", steps)
		for len(s.late) <= steps {
			s.late = append(s.late, nil)
		}
		s.late[steps] = append(s.late[steps], events...)
	case 3:
		s.say("  events come twice")
		s.tell(slices.Concat(events, events))
	default:
		s.tell(events)
	}
}

func (s *sequence) tell(events []modelEvent) {
	for _, e := range events {
		s.say("  lpu%d: event %s", e.card, e.what)
		s.watcher.Take(e.event)
		s.cards[e.card].tell(e.what, s.now())
	}
}

// step lets one thing happen.
func (s *sequence) step() {
	s.t.Helper()
	if len(s.late) > 0 {
		var due []modelEvent
		due, s.late = s.late[0], s.late[1:]
		s.tell(due)
	}
	i := s.random.IntN(len(s.cards))
	s.deliver(s.change(i, s.cards[i]))
}

// change changes one card, and returns the events that the kernel makes of it.
func (s *sequence) change(i int, c *modelCard) []modelEvent {
	s.t.Helper()
	m, plugged := s.machine, c.device != 0
	say := func(format string, values ...any) {
		s.say("lpu%d: "+format, append([]any{i}, values...)...)
		c.changed = true
	}
	switch what := s.random.IntN(24); {
	case what == 0:
		s.say("serve is started again")
		synctest.Wait()
		s.start()
		s.scans(0, 1)
		return nil
	case what == 1:
		s.say("11 minutes pass")
		time.Sleep(11 * time.Minute)
		for _, c := range s.cards {
			c.changed = true // what has lasted for ten minutes may end
		}
		return nil
	case what < 4 && plugged:
		say("out of its slot")
		s.hold(m.Card(i).Dir)
		s.must(m.Unplug(i))
		words := []string{"node", "unbind", "remove"}
		if !c.bound {
			words = words[2:]
		}
		c.device, c.mute, c.disabled, c.power = 0, false, false, ""
		for _, counter := range []*modelCounter{&c.fatal, &c.nonFatal, &c.correctable} {
			counter.value = 0
		}
		if s.random.IntN(3) == 0 {
			return append(s.events(i, words...), s.replug(i, c)...)
		}
		return s.events(i, words...)
	case what < 7 && !plugged:
		return s.replug(i, c)
	case what < 3:
		return s.recovery(i)
	case what < 7 && c.bound && plugged:
		s.must(m.Unbind(i))
		if s.random.IntN(2) == 0 {
			say("its driver is bound again")
			s.must(m.Bind(i))
			c.disabled = false
			return s.events(i, "node", "unbind", "node", "bind")
		}
		say("its driver is unbound")
		c.bound = false
		return s.events(i, "node", "unbind")
	case what < 10 && plugged && !c.bound:
		say("its driver is bound")
		s.must(m.Bind(i))
		c.bound, c.disabled = true, false
		return s.events(i, "node", "bind")
	case what < 11 && plugged && c.bound && (c.user == 0 || len(s.cards) == 1): // else another card may get the node that the user holds
		s.renumber(i)
		say("its node is %s", m.Card(i).Node)
		return s.events(i, "node", "node")
	case what < 13:
		return s.recovery(i)
	case what == 13:
		c.user = s.now()
		if s.random.IntN(2) == 0 {
			c.user = 0
		}
		s.say("who uses lpu%d has begun at %v", i, c.user)
		s.use(i, c)
	case !plugged:
		say("nothing")
	case what < 16:
		c.mute = !c.mute
		say("all ones: %t", c.mute)
		s.must(m.AllOnes(i, c.mute))
	case what == 16:
		states := map[string][2]string{"": {"D0", "active"}, "lost": {"D3cold", "active"}, "asleep": {"D3hot", "suspended"}}
		c.power = []string{"", "lost", "lost", "asleep"}[s.random.IntN(4)]
		c.mute = c.power == "lost"
		say("power: %q, all ones: %t", c.power, c.mute)
		s.must(m.Power(i, states[c.power][0], states[c.power][1]), m.AllOnes(i, c.mute))
	case what == 17:
		c.lanes = []int{4, 8, 16}[s.random.IntN(3)]
		say("%d lanes", c.lanes)
		s.must(m.LinkNow(i, 0, uint16(c.lanes)))
	case what < 20:
		kind := []string{"correctable", "nonfatal", "fatal"}[s.random.IntN(3)]
		n := uint64(3 + 147*s.random.IntN(2))
		say("%d %s errors", n, kind)
		map[string]*modelCounter{"correctable": &c.correctable, "nonfatal": &c.nonFatal, "fatal": &c.fatal}[kind].value += n
		s.must(m.CountErrors(i, kind, n))
	case what == 20 && c.bound:
		say("reset behind its driver")
		c.disabled = true
		s.must(m.ResetBehindDriver(i))
	case c.bound:
		s.driverSays(i, c)
		say("its driver says offline: %t, bad: %t, firewall: %t, hot: %t, memory errors: %d", c.offline, c.bad, c.firewall, c.hot, c.ecc.value)
	}
	return nil
}

// replug puts a card back into its slot.
func (s *sequence) replug(i int, c *modelCard) []modelEvent {
	s.t.Helper()
	s.say("lpu%d: back in its slot", i)
	s.must(s.machine.Replug(i))
	c.device, c.changed = s.inode(i), true
	if c.bound {
		return s.events(i, "add", "node", "bind")
	}
	return s.events(i, "add")
}

// recovery is an error on the PCI bus, and how far its recovery is.
func (s *sequence) recovery(i int) []modelEvent {
	if s.cards[i].device == 0 {
		return nil
	}
	word := []string{"BEGIN_RECOVERY", "SUCCESSFUL_RECOVERY", "FAILED_RECOVERY"}[s.random.IntN(3)]
	s.say("lpu%d: %s", i, word)
	return s.events(i, word)
}

// driverSays changes one thing that the driver says of the card.
func (s *sequence) driverSays(i int, c *modelCard) {
	s.t.Helper()
	switch s.random.IntN(5) {
	case 0:
		c.offline = !c.offline
	case 1:
		c.bad = !c.bad
	case 2:
		c.firewall = !c.firewall && s.profile != "bertha"
	case 3:
		c.hot = !c.hot
	case 4:
		c.ecc.value++
	}
	s.writeDriver(i, c)
}

// writeDriver writes what the driver says of the card.
func (s *sequence) writeDriver(i int, c *modelCard) {
	s.t.Helper()
	number := func(is bool) string { return map[bool]string{true: "1", false: "0"}[is] }
	set := map[string]string{"hwmon/temp1_input": map[bool]string{true: "101000", false: "41000"}[c.hot]}
	if s.profile == "bertha" {
		state := "ok"
		if c.bad {
			state = "failed"
		}
		if c.offline {
			state = "resetting"
		}
		set["ha/state"], set["ha/errors_uncorrectable"] = state, fmt.Sprint(c.ecc.value)
	} else {
		set["dev_offline"], set["device_bad_state"], set["firewall.u/status"] = number(c.offline), number(c.bad), number(c.firewall)
		set["mig.u/ecc_ue_cnt"] = fmt.Sprint(c.ecc.value)
	}
	for name, text := range set {
		s.must(s.machine.Set(i, name, text))
	}
}

// renumber gives the node of a card other numbers, or those of another card, which gets its own.
func (s *sequence) renumber(i int) {
	s.t.Helper()
	n := s.machine.Card(i).Numbers
	n.Minor = 140 + (n.Minor+1)%40
	for j := range s.cards {
		if s.machine.Card(j).Numbers == n {
			n.Minor = 200 + uint32(i)
		}
	}
	s.must(s.machine.Renumber(i, n))
}

// use lets one process use a card, from c.user on, or none.
func (s *sequence) use(i int, c *modelCard) {
	s.t.Helper()
	process := filepath.Join(s.root, "proc", fmt.Sprint(100+i))
	s.must(os.RemoveAll(process))
	if c.user > 0 {
		stat := fmt.Sprintf("%d (a) S 1 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0\n", 100+i, (c.user+9*time.Millisecond)/(10*time.Millisecond))
		s.must(os.MkdirAll(filepath.Join(process, "fd"), 0o755), os.WriteFile(filepath.Join(process, "stat"), []byte(stat), 0o644),
			os.Symlink(s.machine.Card(i).Node, filepath.Join(process, "fd/3")))
	}
}

// hold keeps the inode of a directory from being given to another one.
func (s *sequence) hold(dir string) {
	f, err := os.Open(filepath.Join(s.root, dir))
	s.must(err)
	s.held = append(s.held, f)
}

func (s *sequence) inode(i int) uint64 {
	return inode(s.t, filepath.Join(s.root, s.machine.Card(i).Dir))
}

// play plays one sequence, and puts the machine back.
func (b *bed) play(t *testing.T, random *rand.Rand) {
	t.Helper()
	s := &sequence{bed: b, t: t, random: random, began: time.Now()}
	defer s.end()
	for i := range b.machine.LPUs() {
		c := &modelCard{device: s.inode(i), bound: true, lanes: 16, healthy: true}
		s.cards = append(s.cards, c)
	}
	s.start()
	s.scans(0)
	for range 4 + random.IntN(5) {
		s.step()
		switch random.IntN(4) {
		case 0: // the next thing happens before anybody looks
			time.Sleep(10 * time.Millisecond)
		case 1:
			s.say("a short look")
			s.scans(0, 11, 12)
		default:
			s.check()
		}
	}
	s.check()
	s.restore()
}

// restore makes the machine what it was.
func (s *sequence) restore() {
	s.t.Helper()
	for i, c := range s.cards {
		if c.user > 0 {
			c.user = 0
			s.use(i, c)
		}
		if c.fatal.value+c.nonFatal.value+c.correctable.value > 0 { // which begin at 0 when the kernel finds the card
			s.must(s.machine.Unplug(i))
			c.device = 0
		}
		if c.device == 0 {
			s.must(s.machine.Replug(i))
		}
		if c.disabled && c.bound {
			s.must(s.machine.Unbind(i))
		}
		if c.disabled || !c.bound {
			s.must(s.machine.Bind(i))
		}
		if c.mute || c.power != "" || c.lanes != 16 {
			s.must(s.machine.AllOnes(i, false), s.machine.Power(i, "D0", "active"), s.machine.LinkNow(i, 0, 16))
		}
		if c.offline || c.bad || c.firewall || c.hot || c.ecc.value > 0 {
			s.writeDriver(i, &modelCard{})
		}
	}
}

// end waits until the last read has ended, and lets inodes go.
func (s *sequence) end() {
	time.Sleep(time.Second)
	for _, f := range s.held {
		_ = f.Close()
	}
}

// plays plays sequences that these seeds make, until one fails, here or on another bed.
func (b *bed) plays(t *testing.T, failed *atomic.Bool, seeds ...uint64) {
	t.Helper()
	for _, seed := range seeds {
		if failed.Load() {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					failed.Store(true)
					t.Logf("on a node of profile %s with %d LPUs, seed %d", b.profile, b.machine.LPUs(), seed)
				}
			}()
			b.play(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// TestSequences plays 200 seeded sequences of faults, events and restarts of serve on simulated
// nodes, 20,000 in .ci/long, and compares what a watcher says with a model. Afterwards no goroutine
// and no file is left open.
func TestSequences(t *testing.T) {
	rounds := long.Steps(t, 200)
	random := long.Rand(t)
	var failed atomic.Bool
	var beds []*bed
	for _, node := range []simulate.Node{
		{Profile: "edge", LPUs: 1}, {Profile: "edge", LPUs: 2}, {Profile: "edge", LPUs: 3}, {Profile: "bertha", LPUs: 2},
	} {
		m, root := machines.Start(t, node)
		plant.File(t, filepath.Join(root, "proc/2/comm"), "kthreadd\n")
		b := &bed{node.Profile, root, m, map[string]string{}}
		b.plays(t, &failed, random.Uint64())
		beds = append(beds, b)
	}
	seeds := make([]uint64, rounds)
	for i := range seeds {
		seeds[i] = random.Uint64()
	}
	goroutines, files, began := runtime.NumGoroutine(), openFiles(t), time.Now()
	t.Run("all", func(t *testing.T) {
		for i, b := range beds {
			t.Run(fmt.Sprintf("%s %d", b.profile, b.machine.LPUs()), func(t *testing.T) {
				t.Parallel()
				b.plays(t, &failed, seeds[i*rounds/len(beds):(i+1)*rounds/len(beds)]...)
			})
		}
	})
	t.Logf("%d sequences in %v", rounds, time.Since(began).Round(time.Millisecond))
	await.Until(t, "nothing is left", func() error {
		runtime.GC() // what a watcher keeps open is closed when it is collected
		if n, open := runtime.NumGoroutine(), openFiles(t); n > goroutines || open > files {
			return fmt.Errorf("%d goroutines, and %d before; %d open files, and %d before", n, goroutines, open, files)
		}
		return nil
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
