package discovery

import (
	"context"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/aside"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// Apart lets other processes read what may sleep in the kernel: what the drivers of LPUs
// answer, and configuration spaces. A process with such a read cannot end before the read
// does. It is for any number of scans, which do not read a card again while a read of it
// hangs. The zero value is ready.
type Apart struct{ hanging stall.Reads }

// Of a card about dirsOfCard directories are open while it is read apart, of atOnceMost
// cards together. Other files are open besides.
const (
	atOnceMost = 16
	dirsOfCard = 8
	otherFiles = 24
)

// atOnce returns how many cards are read together: all of them may not be open at the
// same time.
func atOnce() int {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	left := limit.Cur - min(limit.Cur, otherFiles)
	return int(max(1, min(atOnceMost, left/dirsOfCard)))
}

// readApart is readCard for all cards.
func (s *scan) readApart(ctx context.Context, lpus []function, found []LPU) {
	size := atOnce()
	for first := 0; first < len(lpus); first += size {
		errands := make([]*errand, 0, size)
		for i := first; i < min(first+size, len(lpus)); i++ {
			found[i] = s.newLPU(ctx, i, lpus[i])
			if lpus[i].readable() {
				errands = append(errands, &errand{lpu: &found[i], f: lpus[i]})
			}
		}
		s.readTogether(ctx, errands)
		for _, e := range errands {
			s.finish(e.lpu, e.err)
		}
	}
}

// readTogether reads cards: first what decides whether a card may be asked, then its
// sensors. One that hangs has the deadline of a card for it; the others go on meanwhile.
func (s *scan) readTogether(ctx context.Context, errands []*errand) {
	for _, e := range errands {
		e.done = make(chan struct{})
		go func() {
			e.err = s.readFirst(ctx, e.lpu, &e.f)
			close(e.done)
		}()
	}
	s.goOn(ctx, errands, func(e *errand) { <-e.done }, func(errands []*errand) {
		s.readAside(ctx, errands, func(errands []*errand) { s.readSettled(ctx, errands) }, s.readState, s.probe)
	})
}

// readSettled reads the rest of cards whose state is known.
func (s *scan) readSettled(ctx context.Context, errands []*errand) {
	noMore := func([]*errand) {}
	ask := []stage{s.askDriver, s.readSensors}
	if s.Unsensed {
		ask = ask[:1]
	}
	askThem := func(errands []*errand) { s.readAside(ctx, errands, noMore, ask...) }
	var settled, unsettled []*errand
	for _, e := range errands {
		if health.MemoryOff(e.lpu.Reading.Command) {
			unsettled = append(unsettled, e)
		} else {
			settled = append(settled, e)
		}
	}
	var wg sync.WaitGroup
	if len(unsettled) > 0 {
		wg.Go(func() {
			time.Sleep(settle)
			s.readAside(ctx, unsettled, askThem, s.probe)
		})
	}
	askThem(settled)
	wg.Wait()
}

// goOn finishes with each card what was begun, and goes on with next. For a slow card a
// goroutine of its own does so, and no other card waits.
func (s *scan) goOn(ctx context.Context, errands []*errand, finish func(*errand), next func([]*errand)) {
	soon, cancel := context.WithTimeout(ctx, s.CardDeadline/atOnceMost)
	defer cancel()
	var prompt []*errand
	var wg sync.WaitGroup
	for _, e := range errands {
		if e.readBy(soon) {
			finish(e)
			prompt = append(prompt, e)
			continue
		}
		wg.Go(func() {
			stall.EndsWithin(ctx, s.CardDeadline, e.done, e.asleep)
			finish(e)
			next([]*errand{e})
		})
	}
	next(prompt)
	wg.Wait()
}

// errand is a card that is read, and what another process has read of it.
type errand struct {
	lpu *LPU
	f   function
	err error // by which the reading ended

	dirs  map[string]int // descriptors of its directories
	paths map[string]int // positions in files
	files []aside.File   // that the stages read
	ends  []int          // how many of them are read by the stages up to each one

	mu      sync.Mutex
	process *aside.Process // that reads them, once it has started
	read    []content      // of the files, as far as they were read
	here    bool           // no other process can read it
	done    chan struct{}  // closed when all was read, or never will be

	ended func() // is called before done is closed
}

type content struct {
	data []byte
	err  error
}

// readAside carries out stages of cards with files that another process reads, and goes
// on with next. Which files these are shows if the stages are carried out while there are
// none yet: no stage may read a file only because of what another one says.
func (s *scan) readAside(ctx context.Context, errands []*errand, next func([]*errand), stages ...stage) {
	var planned, started []*errand
	for _, e := range errands {
		if e.err != nil || !s.plan(e, stages) {
			continue
		}
		planned = append(planned, e)
		if len(e.files) > 0 && !e.here {
			started = append(started, e)
		}
	}
	if len(started) > 0 {
		go readFiles(started, s.CardDeadline/(2*atOnceMost))
	}
	s.goOn(ctx, planned, func(e *errand) {
		if !s.carryOut(ctx, e, stages) {
			e.err = fmt.Errorf("%w within %v", stall.ErrStalled, s.CardDeadline)
		}
	}, next)
}

// plan finds out which files the stages read of a card. It returns false, and the card
// has an error, if a read of it hangs that has begun earlier.
func (s *scan) plan(e *errand, stages []stage) bool {
	what := StageOf(e.lpu.Address, DriverStage)
	mine, earlier := s.Apart.hanging.Begin(what)
	if earlier != nil {
		e.err = fmt.Errorf("%w: an earlier read hangs", stall.ErrStalled)
		return false
	}
	e.dirs, e.paths, e.files, e.ends, e.read = map[string]int{}, map[string]int{}, nil, nil, nil
	e.process, e.done = nil, make(chan struct{})
	e.ended = func() { s.Apart.hanging.End(what, mine) }
	f := e.f
	f.apart, f.tree = true, s.tree.Through(e.note)
	for _, read := range stages {
		read(*e.lpu, f)
		e.ends = append(e.ends, len(e.files))
	}
	if len(e.files) == 0 || e.here {
		e.end(e.here)
	}
	return true
}

// note notes a file that is to be read. For now there is none.
func (e *errand) note(d *host.Dir, name string, limit int) ([]byte, error) {
	p := path.Join(d.Path, name)
	if _, known := e.paths[p]; known {
		return nil, unix.ENOENT
	}
	fd, opened := e.dirs[d.Path]
	if !opened {
		var err error
		if fd, err = d.Dup(); err != nil {
			e.here = true
			return nil, unix.ENOENT // for now: reading it here shows whether there is a shortage
		}
		e.dirs[d.Path] = fd
	}
	e.paths[p] = len(e.files)
	e.files = append(e.files, aside.File{Dir: fd, Name: name, Limit: limit})
	return nil, unix.ENOENT
}

// readBy reports whether what was begun with a card is done before the context ends. What
// this process has to read itself is not done.
func (e *errand) readBy(ctx context.Context) bool {
	select {
	case <-e.done:
	case <-ctx.Done():
	}
	select {
	case <-e.done:
	default:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.here
}

// asleep reports whether the card lets wait, and not the machine.
func (e *errand) asleep() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.here || len(e.files) == 0 || e.process != nil && e.process.Asleep()
}

// carryOut carries out those stages of which all files were read, or all in this process
// if there is no other one. It returns false if some are left.
func (s *scan) carryOut(ctx context.Context, e *errand, stages []stage) bool {
	e.mu.Lock()
	have, here := e.read, e.here
	e.mu.Unlock()
	if len(e.files) > 0 && len(have) == len(e.files) {
		<-e.done // which is closed soon: the process has no more to read
	}
	f := e.f
	f.apart, f.tree = true, s.tree.Through(func(d *host.Dir, name string, limit int) ([]byte, error) {
		i, known := e.paths[path.Join(d.Path, name)]
		if !known || i >= len(have) {
			return nil, stall.ErrStalled
		}
		return have[i].data[:min(limit, len(have[i].data))], have[i].err
	})
	if here {
		f = e.f
	}
	for i, read := range stages {
		switch {
		case here:
			if s.stage(ctx, DriverStage, read, e.lpu, f) != nil {
				return false
			}
		case len(have) < e.ends[i]:
			return false
		default:
			*e.lpu = read(*e.lpu, f)
		}
	}
	return true
}

// one lets another process read one file, for those that are read before a card is known
// to answer. It waits for a time, and does not read a file again while a read of it
// hangs.
func (a *Apart) one(limit time.Duration) host.ReadThrough {
	return func(d *host.Dir, name string, most int) ([]byte, error) {
		what := path.Join(d.Path, name)
		mine, earlier := a.hanging.Begin(what)
		if earlier != nil {
			return nil, stall.ErrStalled
		}
		var c content
		var reader atomic.Pointer[aside.Process]
		go func() {
			c.data, c.err = readOne(d, aside.File{Name: name, Limit: most}, &reader)
			a.hanging.End(what, mine)
		}()
		asleep := func() bool { p := reader.Load(); return p != nil && p.Asleep() }
		if !stall.EndsWithin(context.Background(), limit, mine.Ended, asleep) {
			return nil, fmt.Errorf("%w within %v", stall.ErrStalled, limit)
		}
		return c.data, c.err
	}
}

// readOne lets another process, which it stores, read a file of a directory. Without such
// a process it is not read.
func readOne(d *host.Dir, f aside.File, reader *atomic.Pointer[aside.Process]) ([]byte, error) {
	fd, err := d.Dup()
	if err != nil {
		return nil, err
	}
	f.Dir = fd
	p, err := aside.Start([]aside.File{f})
	_ = unix.Close(fd)
	if err != nil {
		return nil, err
	}
	reader.Store(p)
	p.Wait(forGood)
	data, _, err := p.Next()
	p.End()
	return data, err
}

// forGood is longer than a read that ends takes.
const forGood = 1000 * time.Hour

// patient returns the tree for single files of which a read may sleep.
func (s *scan) patient() *host.Tree {
	if s.Apart == nil {
		return s.tree
	}
	return s.tree.Through(s.Apart.one(s.CardDeadline))
}

// readFiles lets one process read the files of cards, card by card, which is cheapest. If
// one does not answer for a while, another process goes on with the next.
func readFiles(errands []*errand, patience time.Duration) {
	files := filesOf(errands)
	p, err := aside.Start(files)
	if err != nil {
		for _, e := range errands {
			e.end(true)
		}
		return
	}
	for _, e := range errands {
		e.mu.Lock()
		e.process = p
		e.mu.Unlock()
	}
	for ended := false; !ended; {
		ended = p.Wait(patience)
		var complete []*errand
		for len(errands) > 0 && errands[0].take(p) {
			complete, errands = append(complete, errands[0]), errands[1:]
		}
		if ended = ended || len(errands) == 0; ended {
			p.End() // before this process can end, which would else leave it to others to wait for it
		}
		for _, e := range complete {
			e.end(false)
		}
		if len(complete) == 0 && len(errands) > 0 && !ended {
			if len(errands) > 1 {
				p.Want(len(files) - len(filesOf(errands[1:])))
				go readFiles(errands[1:], patience)
			}
			errands = errands[:1]
		}
	}
	for _, e := range errands {
		e.end(true)
	}
}

func filesOf(errands []*errand) (files []aside.File) {
	for _, e := range errands {
		files = append(files, e.files...)
	}
	return files
}

// take takes what was read of the card, and reports whether that is all.
func (e *errand) take(p *aside.Process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.read) < len(e.files) {
		data, ok, err := p.Next()
		if !ok {
			return false
		}
		e.read = append(e.read, content{data, err})
	}
	return true
}

// end says that no more is read of the card; here: because there is no other process to
// do so.
func (e *errand) end(here bool) {
	for _, fd := range e.dirs {
		_ = unix.Close(fd)
	}
	e.mu.Lock()
	e.here = e.here || here
	e.mu.Unlock()
	e.ended()
	close(e.done)
}
