package ring

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// perID is how many findings of one id are reported one by one.
const perID = 20

// report collects the findings about one table: no more than perID of each id, and how many there were.
type report struct {
	file     string // the table's
	findings finding.List
	times    map[finding.ID]int
}

// place is where in the document something stands.
type place struct {
	line    int    // from 1; 0: the table as a whole
	pointer string // JSON pointer (RFC 6901) to the value: "/network/3/src_id"; "": the table as a whole
}

// add adds a finding about cards, as [ID.String] spells them, or about the table.
func (r *report) add(id finding.ID, at place, cards []string, message, remedy string) {
	if r.times == nil {
		r.times = map[finding.ID]int{}
	}
	if r.times[id]++; r.times[id] > perID {
		return
	}
	subject := cmp.Or(strings.Join(cards, ", "), r.file)
	if at.pointer != "" {
		subject = cmp.Or(strings.Join(cards, ", "), path.Base(r.file)) + " at " + at.pointer
	}
	r.findings.Add(id, subject, message, remedy).At(r.file, at.line)
}

// done is all findings. Where there were too many of one id, one more counts the rest.
func (r *report) done() finding.List {
	counted := map[finding.ID]bool{}
	for _, f := range r.findings {
		rest := r.times[f.ID] - perID
		if rest <= 0 || counted[f.ID] {
			continue
		}
		counted[f.ID] = true
		r.findings.Add(f.ID, r.file, fmt.Sprintf("%d more findings of this kind", rest), "correct those above and check again").At(r.file, 0)
	}
	return r.findings
}
