package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

const (
	queueKind = "Queue"
	// In bytes: 4,096 wishes that are as long as requests may be, and the lines of as many
	// that have ended.
	journalLimit = 64 << 20
	leastLines   = 64 // for which it is not written whole again
)

// journal is the file with the wishes that wait: a line for each change of the queue,
// after a line that names the boot. So a change is one short write, however
// many wait. Who only wants to know who has which LPU does not read it.
type journal struct {
	statefile.Lines // not open: it has to be written whole
	rows            int
}

// head is the first line.
type head struct {
	statefile.Header
	Boot string `json:"boot"` // host.Moment
	Last uint64 `json:"last"` // no connection had a higher number when it was written whole
}

// row is each other line. One of the two is set.
type row struct {
	Waits *entry `json:"waits,omitempty"`
	Ended string `json:"ended,omitempty"` // the id of a wish that waits no longer
}

// journalOf is the journal beside the record of leases.
func journalOf(leases File) journal {
	return journal{Lines: statefile.Lines{Path: filepath.Join(filepath.Dir(leases.Path), "queue.jsonl")}}
}

// read returns the wishes that waited last in this boot, in their order. A file that
// cannot be used is put aside, and a finding says so. The error is that it cannot be
// read, or not be put aside.
func (j *journal) read(boot string) (queue []*entry, last uint64, said finding.List, err error) {
	data, err := wholefile.Read(j.Path, journalLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, nil, nil
	case err == nil:
		queue, last, err = parseJournal(data, boot)
	case !errors.Is(err, wholefile.ErrTooLarge):
		return nil, 0, nil, err
	}
	if err == nil {
		return queue, last, nil, nil
	}
	said.Add(finding.LeaseRecords, j.Path, err.Error()+"; it is put aside as "+j.Path+".bad", "ask again for what was waited for")
	return nil, 0, said, os.Rename(j.Path, j.Path+".bad")
}

// parseJournal reads the text of a journal. Of another boot it says nothing. A last line
// without an end was not written whole, and so not promised.
func parseJournal(data []byte, boot string) (queue []*entry, last uint64, err error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	var first head
	if err := decode(lines[0], maxRequest, &first); err != nil {
		return nil, 0, err
	}
	if want := statefile.NewHeader(queueKind); first.Header != want {
		return nil, 0, &statefile.HeaderError{Have: first.Header, Want: want}
	}
	if first.Boot != boot {
		return nil, 0, nil
	}
	at := map[string]int{}
	last = first.Last
	for _, line := range lines[1:] {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var r row
		if err := decode(line, 2*maxRequest, &r); err != nil {
			return nil, 0, err
		}
		i, waits := at[r.Ended]
		switch {
		case r.Waits != nil:
			at[r.Waits.ID] = len(queue)
			queue = append(queue, r.Waits)
			last = highest(queue[len(queue)-1:], last) // also if it has ended: no other wish gets its id
		case waits:
			queue[i] = nil
		}
	}
	queue = slices.DeleteFunc(queue, func(e *entry) bool { return e == nil })
	return queue, last, checkQueue(queue)
}

// highest is the highest number of a connection.
func highest(queue []*entry, last uint64) uint64 {
	for _, e := range queue {
		if n, err := number(e.ID, "l"); err == nil {
			last = max(last, n)
		}
	}
	return last
}

// checkQueue finds what no arbiter writes.
func checkQueue(queue []*entry) error {
	for _, e := range queue {
		if e.Grant != nil || e.Gone {
			return fmt.Errorf("%.40q: a lease among the wishes that wait", e.ID)
		}
	}
	return (&Record{Boot: "this", Last: highest(queue, 0), Leases: queue}).check()
}

// write writes steps of the queue or, where that is due, all of it. After an error the
// next write writes all of it.
func (j *journal) write(steps []step, queue []*entry, boot string, last Conn) error {
	if !j.IsOpen() || j.rows+len(steps) > 2*len(queue)+leastLines {
		return j.writeAll(queue, boot, last)
	}
	var text bytes.Buffer
	for _, s := range steps {
		if err := statefile.AddLine(&text, row{s.waits, s.ended}); err != nil {
			return err
		}
	}
	if text.Len() == 0 {
		return nil
	}
	j.rows += len(steps)
	return j.Append(text.Bytes())
}

func (j *journal) writeAll(queue []*entry, boot string, last Conn) error {
	j.Close()
	var text bytes.Buffer
	err := statefile.AddLine(&text, head{statefile.NewHeader(queueKind), boot, uint64(last)})
	for _, e := range queue {
		err = errors.Join(err, statefile.AddLine(&text, row{Waits: e}))
	}
	if err != nil {
		return err
	}
	if err := wholefile.MakeDir(filepath.Dir(j.Path)); err != nil {
		return err
	}
	// Unsynced, because it says nothing after the boot.
	if err := wholefile.ReplaceUnsynced(j.Path, text.Bytes()); err != nil {
		return err
	}
	j.rows = len(queue)
	return j.Open(0)
}
