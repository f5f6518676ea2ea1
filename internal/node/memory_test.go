package node_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	judge "github.com/hyperaccel/lpuctl/pkg/health"
)

func hostRoot(root string) host.Root { return host.Root(root) }

// remember gives the program the memory of its node.
func (p *program) remember() {
	p.w.Helper()
	memory, err := node.RememberIn(hostRoot(p.w.root))
	p.w.must(err)
	p.Memory = memory
}

// inReset is the inventory of a machine while the card of lpu2 answers nothing.
func (w *world) inReset() *discovery.Inventory {
	return changed(w.scan(), func(lpus []discovery.LPU) []discovery.LPU {
		lpus[2].Health = discovery.HealthUnknown
		return lpus
	})
}

// TestHealthAtTheStart: of a card that answers nothing when the program starts, what was known before in this boot, or what another
// program says, or else nothing for five seconds.
func TestHealthAtTheStart(t *testing.T) {
	w := newWorld(t)
	const id = "pci-0000-45-00.1"
	health := func(boot, healthy string) string {
		return `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "Health", "boot": "` + boot + `", "healthy": {` + healthy + `}}`
	}
	boot := host.Now().Boot
	if boot == "" {
		t.Fatal("this machine does not tell its boot")
	}
	for name, c := range map[string]struct {
		file   string // health.json
		recall map[string]bool
		asked  bool // whether another program is asked
		want   bool // healthy
		known  bool // from the start
	}{
		"it was healthy":                      {file: health(boot, `"`+id+`": true`), want: true, known: true},
		"it was unhealthy":                    {file: health(boot, `"`+id+`": false`), known: true, recall: map[string]bool{id: true}},
		"in another boot":                     {file: health("another", `"`+id+`": true`), asked: true},
		"in no boot":                          {file: health("", `"`+id+`": true`), asked: true},
		"another card was":                    {file: health(boot, `"pci-0000-43-00.1": true`), asked: true},
		"nothing is known":                    {asked: true},
		"the file is not whole":               {file: health(boot, `"`+id+`": true`)[:90], asked: true},
		"another program knows it":            {recall: map[string]bool{id: true}, asked: true, want: true, known: true},
		"another program says that it is not": {recall: map[string]bool{id: false}, asked: true, known: true},
		"another program knows, the file not": {
			file: health(boot, `"x": true`), recall: map[string]bool{id: true}, asked: true, want: true, known: true,
		},
		"another program knows of another card": {recall: map[string]bool{"x": true}, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			w.now = time.Unix(1e9, 0)
			p := w.program()
			p.Memory.Dir = t.TempDir()
			if c.file != "" {
				w.must(os.WriteFile(filepath.Join(p.Memory.Dir, "health.json"), []byte(c.file), 0o600))
			}
			asked := 0
			p.Recall = func(context.Context) map[string]bool { asked++; return c.recall }
			sick := w.inReset()
			for seconds := range 7 {
				s := p.Update(t.Context(), node.Spec{}, found(sick))
				card := s.Devices[slices.IndexFunc(s.Devices, func(d node.Device) bool { return d.ID == id })]
				if card.Healthy != c.want || s.Settled != (c.known || seconds >= 5) {
					t.Errorf("after %d s: healthy: %t, settled: %t", seconds, card.Healthy, s.Settled)
				}
				w.now = w.now.Add(time.Second)
			}
			if (asked > 0) != c.asked || asked > 1 {
				t.Errorf("another program was asked %d times", asked)
			}
		})
	}
}

// TestHealthOutlivesTheProgram: what one program knew, the next one sends. What nobody knew is not written down.
func TestHealthOutlivesTheProgram(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	next := func(inventories ...*discovery.Inventory) *node.Snapshot {
		p := w.program()
		p.Memory.Dir = dir
		var s *node.Snapshot
		for _, inv := range inventories {
			s = p.Update(t.Context(), node.Spec{}, found(inv))
		}
		return s
	}
	if s := next(w.inReset()); s.Settled || unhealthy(s) != "pci-0000-45-00.1" {
		t.Errorf("the first: unhealthy: %s, settled: %t", unhealthy(s), s.Settled)
	}
	if s := next(w.inReset()); s.Settled {
		t.Error("what nobody knew was written down")
	}
	next(w.scan(), w.inReset())
	if s := next(w.inReset()); !s.Settled || unhealthy(s) != "" {
		t.Errorf("after one that knew it: unhealthy: %s, settled: %t", unhealthy(s), s.Settled)
	}
	sick := changed(w.scan(), func(lpus []discovery.LPU) []discovery.LPU { lpus[2].Health = discovery.Unhealthy; return lpus })
	next(sick)
	if s := next(w.inReset()); !s.Settled || unhealthy(s) != "pci-0000-45-00.1" {
		t.Errorf("after one that knew it unhealthy: unhealthy: %s, settled: %t", unhealthy(s), s.Settled)
	}
}

// TestNoOneIsAskedWithoutNeed: Recall takes time, and the kubelet waits.
func TestNoOneIsAskedWithoutNeed(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.Recall = func(context.Context) map[string]bool { t.Error("asked"); return nil }
	if s := p.update(); !s.Settled {
		t.Error("not settled, though every LPU answers")
	}
	if s := p.Update(t.Context(), node.Spec{}, found(w.inReset())); !s.Settled || health(s) != "HHHH" {
		t.Errorf("later: %s, settled: %t", health(s), s.Settled)
	}
}

// TestMemoryThatCannotBeWritten is told once, and written when it can be.
func TestMemoryThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	file := filepath.Join(t.TempDir(), "file")
	w.must(os.WriteFile(file, nil, 0o600))
	p.Memory.Dir = filepath.Join(file, "state")
	for range 3 {
		p.update()
	}
	if n := strings.Count(p.log.String(), "cannot be kept for the next start"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.log)
	}
	w.must(os.Remove(file))
	p.update()
	for _, name := range []string{"health.json", "last-ring.yaml"} {
		if _, err := os.Stat(filepath.Join(p.Memory.Dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestTheFileOfHealthIsWrittenAgain: serve writes a file again that has broken, and commands say so
// until then.
func TestTheFileOfHealthIsWrittenAgain(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"nothing": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 10) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		w := newWorld(t)
		p := w.program()
		p.remember()
		p.update()
		path := filepath.Join(p.Memory.Dir, node.HealthFile)
		w.must(spoil(path))
		inv := w.scan()
		if err := p.Memory.Judge(inv, judge.DefaultPolicy(), w.sinceBoot()); (err != nil) != (name != "nothing") {
			t.Errorf("%s: %v", name, err)
		}
		w.now = w.now.Add(11 * time.Second) // longer than a scan counts
		p.update()
		if records, err := p.Memory.Records(); err != nil || len(records) < len(inv.LPUs) {
			t.Errorf("%s: it is not written again: %v", name, err)
		}
	}
}

// TestTwoKeepTheHealth: serve and the DRA driver do not write what the other has written.
func TestTwoKeepTheHealth(t *testing.T) {
	w := newWorld(t)
	p, q := w.program(), w.program()
	p.remember()
	q.Memory.Dir = p.Memory.Dir
	var files []os.FileInfo
	for range 3 {
		p.update()
		q.update()
		file, err := os.Stat(filepath.Join(p.Memory.Dir, node.HealthFile))
		w.must(err)
		files = append(files, file)
		w.now = w.now.Add(11 * time.Second)
	}
	if !os.SameFile(files[1], files[2]) {
		t.Error("the file is replaced, though nothing has changed")
	}
}

// TestTheCablingIsKept: the health and the last cabling are written when they change, and read by a scan that finds no good table.
func TestTheCablingIsKept(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	p.remember()
	p.update()
	before := w.state(p.Memory.Dir)
	tables, err := filepath.Glob(filepath.Join(w.root, "opt/hyperdex/hrt/xclbin/table.json"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	want := w.scan()
	w.must(os.WriteFile(tables[0], []byte("{"), 0o600))
	p.update()
	if after := w.state(p.Memory.Dir); !slices.Equal(before, after) {
		t.Errorf("a table that breaks changes what is kept:\n%v\n%v", before, after)
	}
	got := w.scan() // by a command, which remembers nothing
	if got.RingTable == nil || !got.RingTable.Kept || len(got.Rings) != 1 || !maps.Equal(places(got), places(want)) {
		t.Errorf("the rings are %+v of %+v", got.Rings, got.RingTable)
	}
}

// places are the LPUs' places on their rings.
func places(inv *discovery.Inventory) map[string]discovery.RingPlace {
	all := map[string]discovery.RingPlace{}
	for _, l := range inv.LPUs {
		if l.Ring != nil {
			all[l.Name] = *l.Ring
		}
	}
	return all
}

// TestTheGraceOutlivesTheProgram: a card that does not answer is given up five seconds after that was first seen, whoever sees it.
func TestTheGraceOutlivesTheProgram(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	width := filepath.Join(w.root, w.machine.Card(2).Dir, "current_link_width")
	var p *program
	start := func() {
		p = w.program()
		p.Memory.Dir = dir
		records, err := p.Memory.Records()
		w.must(err)
		p.watcher = watch.New(w.root, watch.Options{Records: records}, w.sinceBoot)
	}
	look := func(want string) {
		t.Helper()
		w.now = w.now.Add(time.Second)
		if s := p.update(); unhealthy(s) != want || !s.Settled {
			t.Errorf("unhealthy: %q, want %q; settled: %t", unhealthy(s), want, s.Settled)
		}
	}
	start()
	look("")
	w.must(os.WriteFile(width, []byte("63\n"), 0o600))
	for range 5 { // a restart after each look
		look("")
		start()
	}
	look("pci-0000-45-00.1")
	var judged discovery.Inventory
	judged.LPUs = w.scan().LPUs
	w.must(p.Memory.Judge(&judged, judge.DefaultPolicy(), w.sinceBoot()))
	if j := judged.LPUs[2].Judged; j == nil || j.Health != discovery.Unhealthy || judged.LPUs[2].Health != discovery.Unhealthy ||
		judged.LPUs[0].Judged.Health != discovery.Healthy {
		t.Errorf("what serve says of it is not shown: %+v", j)
	}
	old := time.Now().Add(-time.Minute)
	w.must(os.Chtimes(filepath.Join(dir, "health.json"), old, old))
	judged.LPUs = w.scan().LPUs
	if w.must(p.Memory.Judge(&judged, judge.DefaultPolicy(), w.sinceBoot())); judged.LPUs[2].Judged != nil {
		t.Error("what serve said a minute ago is shown")
	}
}

// TestAFileOfHealthThatIsBroken is put aside, and nothing is unhealthy for it.
func TestAFileOfHealthThatIsBroken(t *testing.T) {
	boot := host.Now().Boot
	for name, text := range map[string]string{
		"cut":   `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "Health", "boot": "` + boot,
		"newer": `{"apiVersion": "lpuctl.hyperaccel.ai/v9", "kind": "Health", "boot": "` + boot + `"}`,
		"other": `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "Ring"}`,
		"empty": ``,
	} {
		m := node.Memory{Dir: t.TempDir()}
		path := filepath.Join(m.Dir, "health.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if records, err := m.Records(); len(records) != 0 || err == nil || !strings.Contains(err.Error(), "put aside as "+path+".bad") {
			t.Errorf("%s: %v, %v", name, records, err)
		}
		if aside, err := os.ReadFile(path + ".bad"); string(aside) != text || err != nil {
			t.Errorf("%s: put aside: %q, %v", name, aside, err)
		}
		if records, err := m.Records(); len(records) != 0 || err != nil {
			t.Errorf("%s: the next time: %v, %v", name, records, err)
		}
	}
}
