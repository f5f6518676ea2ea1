package ring

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// perID is how many findings with the same id are reported one by one.
const perID = 20

// report collects the findings about one table.
type report struct {
	file string // path of the table
	finding.List
	times map[finding.ID]int // how many there were with each id; List has the first perID
}

func newReport(file string) report { return report{file: file, times: map[finding.ID]int{}} }

// location is a value in the document.
type location struct {
	line    int    // from 1; 0: the table as a whole
	pointer string // JSON pointer (RFC 6901): "/network/3/src_id"; "": the table as a whole
}

// add adds a finding. The subject is one card or several, separated by commas and spelled
// as [ID.String] does; "" is the table. The finding has the remedy of docs/findings.md;
// the caller may set a better one.
func (r *report) add(id finding.ID, at location, subject, format string, args ...any) *finding.Finding {
	if r.times[id]++; r.times[id] > perID {
		return &finding.Finding{} // it is only counted
	}
	if at.pointer != "" {
		subject = cmp.Or(subject, path.Base(r.file)) + " at " + at.pointer
	}
	return r.List.Add(id, cmp.Or(subject, r.file), fmt.Sprintf(format, args...), "").At(r.file, at.line)
}

// done returns all findings. Where there were too many with the same id, one more says
// how many are left out.
func (r *report) done() finding.List {
	for _, id := range slices.Sorted(maps.Keys(r.times)) {
		if rest := r.times[id] - perID; rest > 0 {
			r.List.Add(id, r.file, fmt.Sprintf("%d more findings of this kind", rest), "correct those above and check again").At(r.file, 0)
		}
	}
	return r.List
}

func (r *report) isolated(card string, at location) {
	r.add(finding.RingIsolated, at, card, "%s has no cable in the table", card)
}

func (r *report) empty(at location) {
	r.add(finding.RingEmpty, at, "", "the table is empty").Remedy = "write the table again with hyperdex-net, or list the rings"
}
