package usage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// All files together have at most nine times sizeLimit: a year of a server on which one
// LPU is leased all the time, and ninety days of one with eight.
const (
	sizeLimit = 1 << 20 // bytes of the file that is written to
	older     = 8       // files beside it
)

// Journal is what an arbiter keeps in a directory that is root's alone: usage.jsonl, to
// which it appends rows, and the same from earlier, usage.1.jsonl to usage.8.jsonl. It is
// safe for concurrent use.
type Journal struct {
	Dir  string
	Keep time.Duration // after which rows are removed

	mu      sync.Mutex
	lines   statefile.Lines
	limit   int64 // for tests: of the file that is written to; 0: sizeLimit
	cleaned int64 // the hour, Unix, in which old rows were looked for
}

func (j *Journal) most() int64 { return cmp.Or(j.limit, sizeLimit) }

// file is the path of a file: 0 is the one that is written to, 8 the oldest.
func (j *Journal) file(n int) string {
	if n == 0 {
		return filepath.Join(j.Dir, "usage.jsonl")
	}
	return filepath.Join(j.Dir, fmt.Sprintf("usage.%d.jsonl", n))
}

// Lease is what the leases of one user of one LPU have in common.
type Lease struct {
	UID     int
	Address string
}

// Resume reads up to when the leases of this boot are in the journal, in time since boot.
// unread is how many lines cannot be read and are left out. A file that is none of these
// is put aside; the error says so, or that it cannot be read.
func (j *Journal) Resume(boot string, now time.Time) (until map[Lease]time.Duration, unread int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sweep()
	until = map[Lease]time.Duration{}
	take := func(r *Row) {
		if l := (Lease{r.UID, r.Address}); strings.HasPrefix(r.Run, bootOf(boot)+"-") {
			until[l] = max(until[l], r.Until)
		}
	}
	_, _ = j.read(1, take) // it may have become an older file a moment ago
	unread, err = j.read(0, take)
	if header, ok := errors.AsType[*unusable](err); ok {
		err = errors.Join(header, os.Rename(j.file(0), j.file(0)+".bad"))
	}
	return until, unread, errors.Join(err, j.clean(now))
}

// sweep removes what an arbiter has left that was killed while it wrote a file again.
func (j *Journal) sweep() {
	for n := range older + 1 {
		wholefile.ClearLeftovers(j.file(n))
	}
}

// unusable is the error that a file is not one of the journal.
type unusable struct {
	path string
	err  error
}

func (e *unusable) Error() string {
	return fmt.Sprintf("%s: %v; it is put aside as %[1]s.bad", e.path, e.err)
}

// read reads a file; there need not be one.
func (j *Journal) read(n int, take func(*Row)) (unread int, err error) {
	data, err := wholefile.Read(j.file(n), 4*sizeLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case errors.Is(err, wholefile.ErrTooLarge):
		return 0, &unusable{j.file(n), wholefile.ErrTooLarge}
	case err != nil:
		return 0, err
	case len(data) == 0: // it was about to be written
		return 0, nil
	}
	if unread, err = parse(data, take); err != nil {
		err = &unusable{j.file(n), err}
	}
	return unread, err
}

// Append writes rows. Those of this program, an arbiter, may be written again.
func (j *Journal) Append(rows []Row, program string, now time.Time) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var text bytes.Buffer
	for i := range rows {
		if err := statefile.AddLine(&text, &rows[i]); err != nil {
			return err
		}
	}
	if err := j.clean(now); err != nil {
		return err
	}
	if err := j.open(); err != nil {
		return err
	}
	if j.lines.Size()+int64(text.Len()) > j.most() {
		if err := j.makeRoom(program, now); err != nil {
			return err
		}
	}
	return j.lines.Append(text.Bytes())
}

// open opens the file to append to it, and begins it if there is none.
func (j *Journal) open() error {
	if !j.lines.Lost() {
		return nil
	}
	if err := wholefile.MakeDir(filepath.Dir(j.Dir)); err != nil {
		return err
	}
	if err := os.Mkdir(j.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	j.lines.Path = j.file(0)
	if err := j.lines.Open(unix.O_CREAT); err != nil || j.lines.Size() > 0 {
		return err
	}
	var head bytes.Buffer
	if err := statefile.AddLine(&head, statefile.NewHeader(kind)); err != nil {
		return err
	}
	return j.lines.Append(head.Bytes())
}

// makeRoom adds up the rows of the file that is written to, so that who leases ten times
// in a second fills it no faster than others. If they are many all the same, it becomes
// the first of the older files, and the oldest is removed.
func (j *Journal) makeRoom(program string, now time.Time) error {
	size, err := j.rewrite(0, program, now)
	if err != nil {
		return err
	}
	if int64(size) > j.most()/2 {
		for n := older; n > 0; n-- {
			if err := os.Rename(j.file(n-1), j.file(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return j.open()
}

// rewrite replaces a file by its rows that are to be kept, in the order of their hours.
// Rows of other arbiters than the program are added up.
func (j *Journal) rewrite(n int, program string, now time.Time) (size int, err error) {
	latest, oldest := map[key]*Row{}, now.Add(-j.Keep)
	var rows []*Row
	_, err = j.read(n, func(r *Row) {
		switch at := latest[r.key()]; {
		case r.Hour.Before(oldest):
		case at != nil && r.Run != "":
			*at = *r
		default:
			rows = append(rows, r)
			latest[r.key()] = r
		}
	})
	if err != nil {
		return 0, err
	}
	rows = summed(rows, program)
	if len(rows) == 0 && n > 0 {
		return 0, os.Remove(j.file(n))
	}
	slices.SortStableFunc(rows, func(x, y *Row) int { return x.Hour.Compare(y.Hour) })
	var text bytes.Buffer
	err = statefile.AddLine(&text, statefile.NewHeader(kind))
	for _, r := range rows {
		err = errors.Join(err, statefile.AddLine(&text, r))
	}
	if err != nil {
		return 0, err
	}
	return text.Len(), wholefile.ReplacePrivate(j.file(n), text.Bytes())
}

// summed adds up rows, but for those of an arbiter that may write them again.
func summed(rows []*Row, program string) (sums []*Row) {
	of := map[key]*Row{}
	for _, r := range rows {
		if !strings.HasPrefix(r.Run, program) {
			r.Run, r.Until = "", 0
		}
		if sum := of[r.key()]; sum != nil {
			sum.add(r)
			continue
		}
		of[r.key()] = r
		sums = append(sums, r)
	}
	return sums
}

// clean removes rows that are older than they are kept, once a day: a file whose first row
// is a day older than that is written again.
func (j *Journal) clean(now time.Time) error {
	hour := now.Truncate(time.Hour).Unix()
	if hour == j.cleaned {
		return nil
	}
	j.cleaned = hour
	for n := range older + 1 {
		first := j.first(n)
		if first.IsZero() || !first.Before(now.Add(-j.Keep-24*time.Hour)) {
			continue
		}
		if _, err := j.rewrite(n, everyProgram, now); err != nil {
			return err
		}
	}
	return nil
}

// everyProgram begins each run: nothing is added up.
const everyProgram = ""

// first is the hour of the first row of a file; zero if there is none.
func (j *Journal) first(n int) (hour time.Time) {
	f, err := os.OpenFile(j.file(n), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return hour
	}
	defer f.Close()
	data := make([]byte, 2*lineLimit)
	got, _ := io.ReadFull(f, data)
	_, _ = parse(data[:got], func(r *Row) {
		if hour.IsZero() {
			hour = r.Hour
		}
	})
	return hour
}

// Forget removes all that was kept.
func (j *Journal) Forget() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines.Close()
	j.sweep()
	files, err := filepath.Glob(filepath.Join(j.Dir, "usage*.jsonl*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	if failed := os.Remove(j.Dir); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
		err = errors.Join(err, failed)
	}
	return err
}

// Close closes the file.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines.Close()
}
