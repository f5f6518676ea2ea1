package watch

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// glance reads the little that shows whether the machine has changed since it was scanned
// last: which PCI functions and which ring tables there are, and of each LPU its driver,
// its node, its link, its power, and what its driver says first. An LPU that has changed
// is due from then on. The result is the rest, to be compared with that of another
// glance; it is "" if it cannot be read. The error is that of a shortage. BenchmarkRest
// and BenchmarkScan show how much less this costs than a scan.
func (w *Watcher) glance(ctx context.Context) (seen string, err error) {
	t, err := host.Root(w.root).Open()
	if err != nil {
		w.cards.want() // a scan may open it a moment later
		return "", nil // or say why it cannot
	}
	defer t.Close()
	w.glanceAtCards(t)
	names, err := t.Names(pci.Devices)
	if short := t.Shortage(); err != nil || short != nil {
		return "", host.ShortageError(short)
	}
	slices.Sort(names)
	tables, err := stall.Within(ctx, &w.cards.reads, "glance ring tables", w.options.CardDeadline, func() (string, error) {
		return fmt.Sprint(host.State(w.options.RingTable), t.State(discovery.InstalledRingTable), t.State(discovery.HyperdexRingTable)), nil
	})
	return strings.Join(append(names, tables, fmt.Sprint(err)), "\n"), nil
}

// glanceAtCards looks at each LPU, all in one goroutine, which is cheapest. If one does
// not answer, another goroutine goes on with the next one.
func (w *Watcher) glanceAtCards(t *host.Tree) {
	lpus := w.latest.LPUs
	for len(lpus) > 0 {
		r := &round{tree: t, reads: &w.cards.reads, dirs: map[string]*host.Dir{}, done: make(chan struct{})}
		for i := range lpus {
			r.eyes = append(r.eyes, &w.cards.of(lpus[i].Address).eye)
		}
		began := time.Now()
		go r.look(lpus)
		select {
		case <-r.done:
			w.glanced = time.Since(began)
		case <-time.After(max(w.cards.patience, min(slower*w.glanced, w.options.CardDeadline))):
		}
		seen := r.end()
		if len(seen) < len(lpus) {
			seen = append(seen, noAnswer)
		}
		for i, text := range seen {
			c := w.cards.of(lpus[i].Address)
			c.due = c.due || text != c.seen
			c.seen = text
		}
		lpus = lpus[len(seen):]
	}
}

// noAnswer is the glance at an LPU that does not answer.
const noAnswer = "does not answer"

// round is one look at several LPUs.
type round struct {
	tree  *host.Tree
	reads *stall.Reads
	eyes  []*eye
	dirs  map[string]*host.Dir // with nodes, and with links named by their numbers
	done  chan struct{}

	mu    sync.Mutex
	seen  []string // what was seen, LPU by LPU
	ended bool     // no caller waits for more
}

// look looks at the LPUs one after the other, until it is ended.
func (r *round) look(lpus []discovery.LPU) {
	defer func() {
		for _, dir := range r.dirs {
			dir.Close()
		}
	}()
	for i := range lpus {
		if !r.add(r.lookAt(&lpus[i], r.eyes[i])) {
			return
		}
	}
	close(r.done)
}

// add adds what was seen; false if no caller waits for it.
func (r *round) add(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.seen = append(r.seen, text)
	}
	return !r.ended
}

// end ends the round, and returns what was seen until then.
func (r *round) end() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return r.seen
}

// lookAt looks at one LPU, unless a read of it hangs: then one goroutine that waits for
// its driver is enough.
func (r *round) lookAt(l *discovery.LPU, e *eye) string {
	what := discovery.StageOf(l.Address, discovery.DriverStage)
	mine, earlier := r.reads.Begin(what)
	if earlier != nil {
		return noAnswer
	}
	defer r.reads.End(what, mine)
	texts := make([]string, 0, 16)
	for _, n := range l.Nodes {
		texts = append(texts, r.node(n))
	}
	e.open(r.tree, l)
	return strings.Join(append(texts, e.read(r.tree, l)), " ")
}

// node returns which file a node is, and to which function its number leads. Where /dev
// cannot be seen this shows new numbers.
func (r *round) node(n discovery.Node) string {
	st, whose, err := unix.Stat_t{}, "", error(nil)
	if dir := r.dir(path.Dir(n.Path)); dir != nil {
		st, err = dir.Lstat(path.Base(n.Path))
	}
	if dir := r.dir(discovery.CharDevices); dir != nil {
		whose, _ = dir.Link(fmt.Sprintf("%d:%d", n.Major, n.Minor))
	}
	return fmt.Sprint(st.Ino, st.Rdev, st.Mode, st.Ctim, err, whose)
}

// dir opens a directory once in a round; nil if it is not there.
func (r *round) dir(p string) *host.Dir {
	dir, known := r.dirs[p]
	if !known {
		if dir, _ = r.tree.Dir(p); dir != nil {
			r.dirs[p] = dir
		}
	}
	return dir
}

// eye is what stays open of an LPU, one descriptor, so that a glance at it costs few
// calls of the kernel.
type eye struct {
	kept   *host.Kept
	device uint64 // inode of the function's directory
}

// runtimeStatus is the first attribute at which an eye looks: of a card that is asleep
// nothing else is read, because that would wake it.
const runtimeStatus = "power/runtime_status"

// open opens the directory of an LPU, unless it is open already.
func (e *eye) open(t *host.Tree, l *discovery.LPU) {
	if e.kept != nil && e.device == l.Reading.Device {
		return
	}
	e.close()
	if dir, err := t.Dir(l.Address.Dir()); err == nil {
		e.device, e.kept = dir.Inode(), dir.Keep()
	}
}

func (e *eye) close() {
	if e.kept != nil {
		e.kept.Close()
		e.kept = nil
	}
}

// read reads what shows whether an LPU has changed.
func (e *eye) read(t *host.Tree, l *discovery.LPU) string {
	if e.kept == nil {
		return "gone"
	}
	attributes := []string{runtimeStatus, "power_state", "current_link_width", "current_link_speed"}
	attributes = append(attributes, discovery.DriverStates(l.Nodes)...)
	driver, _ := e.kept.LinkName("driver")
	texts := []string{fmt.Sprint(e.device), driver}
	for i, name := range attributes {
		text, err := e.kept.Read(name)
		if err != nil && !host.IsAbsent(err) {
			text = t.Note(err).Error()
		}
		texts = append(texts, text)
		if i == 0 && strings.TrimSpace(text) == "suspended" {
			break
		}
	}
	return strings.Join(texts, " ")
}
