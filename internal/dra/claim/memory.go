package claim

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// memory is what a store knows of claims besides their files. The zero value knows
// nothing.
type memory struct {
	mu    sync.Mutex
	known map[string]learned // by uid: claims that have been seen prepared
	// By uid: claims that pods have, as the kubelet said last; nil: it has not been asked.
	heard  map[string]*Record
	at     time.Time            // of heard
	missed map[string]time.Time // by uid: since when a claim has neither record nor CDI file
}

// learned is a prepared claim, and since when it is known.
type learned struct {
	record *Record
	at     time.Time
}

// confirmAfter is how much later than a claim was missed the kubelet has to name it, for
// its files to be written again. It still names a claim while another process gives that
// back.
const confirmAfter = 500 * time.Millisecond

// Hear takes the claims that pods have, as the kubelet says. Their LPUs are theirs,
// whatever has become of their files.
func (s *Store) Hear(claims []cdi.Claim) {
	heard := map[string]*Record{}
	for i := range claims {
		if r := s.recordOf(&claims[i]); r.check() == nil {
			heard[r.UID] = r
		}
	}
	m := &s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard, m.at = heard, time.Now()
}

// hasHeard reports whether the kubelet has said which claims pods have.
func (m *memory) hasHeard() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard != nil
}

// recordOf makes the record of a claim out of what its CDI file or the kubelet says.
func (s *Store) recordOf(c *cdi.Claim) *Record {
	r := &Record{
		Version: recordVersion, Boot: s.BootID, State: completed, Namespace: c.Namespace, Name: c.Name, UID: c.UID,
	}
	for _, q := range c.Requests {
		request := RecordRequest{Name: q.Name, Variables: None}
		if q.List {
			request.Variables = List
		}
		for _, d := range q.Devices {
			request.Devices = append(request.Devices, RecordDevice{d.Name, d.LPUs})
		}
		r.Requests = append(r.Requests, request)
	}
	return r
}

// learn remembers a prepared claim.
func (m *memory) learn(r *Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]learned{}
	}
	at := time.Now()
	if before, ok := m.known[r.UID]; ok && before.record.same(r) {
		at = before.at
	}
	r = r.clone()
	r.State = completed
	m.known[r.UID] = learned{r, at}
}

// forget forgets a claim that was given back. The kubelet may still name it.
func (m *memory) forget(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, uid)
	delete(m.heard, uid)
}

// recall adds the claims whose records are lost or cannot be used, and of which there is
// something else: a CDI file, a broken file, or the kubelet's word. What the store
// remembers of one is exact, but without anything else another process has given the
// claim back.
func (m *memory) recall(f *found) {
	m.mu.Lock()
	defer m.mu.Unlock()
	missed := map[string]time.Time{}
	for uid, r := range m.heard {
		if f.records[uid] != nil || f.adopted[uid] != nil {
			continue
		}
		if !f.isBroken(uid) { // it has no file
			missed[uid] = time.Now()
			if since, ok := m.missed[uid]; ok {
				missed[uid] = since
			}
			f.unconfirmed[uid] = m.at.Sub(missed[uid]) < confirmAfter
		}
		f.adopted[uid] = r.clone()
	}
	m.missed = missed
	for uid, l := range m.known {
		switch have := f.adopted[uid]; {
		case have != nil && have.sameLPUs(l.record), f.isBroken(uid):
			f.adopted[uid] = l.record.clone()
		case f.records[uid] == nil && have == nil && m.at.Sub(l.at) > owner.KubeletSettle:
			delete(m.known, uid)
		}
	}
	for uid := range f.adopted {
		delete(f.strange, uid)
	}
}

// sameLPUs reports whether two records are of one claim and give it the same LPUs.
func (r *Record) sameLPUs(other *Record) bool {
	return r.UID == other.UID && slices.Equal(r.Members(), other.Members())
}

// clone is a copy that can be changed.
func (r *Record) clone() *Record {
	c := *r
	c.Requests, c.rest = slices.Clone(r.Requests), maps.Clone(r.rest)
	return &c
}
