package claim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// quarantined is the ending of a record that was put aside.
const quarantined = ".bad"

// found is what the checkpoint says. Of a claim whose record is lost or cannot be used, it is what its CDI file says, the store remembers,
// or the kubelet says.
type found struct {
	records map[string]*Record // by uid
	bad     []bad
	adopted map[string]*Record // by uid: claims without a record that can be used
	strange map[string]error   // by uid: CDI files of claims of which nothing else is known, and why they do not tell either

	unconfirmed map[string]bool // by uid, of adopted: there is no file of the claim, and another process may just have given it back
}

// of returns what is known of a claim, nil if nothing is.
func (f *found) of(uid string) *Record {
	if r := f.records[uid]; r != nil {
		return r
	}
	return f.adopted[uid]
}

// isBad reports whether a claim has a record that cannot be used.
func (f *found) isBad(uid string) bool {
	return slices.ContainsFunc(f.bad, func(b bad) bool { return b.uid == uid })
}

// bad is a file of the checkpoint that cannot be used.
type bad struct {
	uid, path string
	err       error
	newer     *Record // what can be understood of it; nil: nothing
	faulty    bool    // the file is wrong; else it could not be read
}

// all are the claims, in the order of their uids.
func (f *found) all() (all []*Record) {
	for _, r := range f.records {
		all = append(all, r)
	}
	for _, r := range f.adopted {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Record) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// read reads the checkpoint, and of claims without a record that can be used, what is known otherwise.
func (s *Store) read() (*found, error) {
	f, err := readRecords(filepath.Join(s.Dir, DirName))
	if err != nil {
		return nil, err
	}
	f.adopted, f.strange, f.unconfirmed = map[string]*Record{}, map[string]error{}, map[string]bool{}
	files, err := os.ReadDir(s.SpecDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, file := range files {
		uid, ok := cdi.ClaimUID(file.Name())
		if !ok || f.records[uid] != nil {
			continue
		}
		r, err := s.adopt(uid)
		if host.IsShortage(err) {
			return nil, err
		}
		if err == nil {
			f.adopted[uid] = r
		} else if !errors.Is(err, fs.ErrNotExist) {
			f.strange[uid] = err
		}
	}
	for _, b := range f.bad {
		if f.adopted[b.uid] == nil && b.newer != nil {
			f.adopted[b.uid] = b.newer
			delete(f.strange, b.uid)
		}
	}
	s.memory.recall(f)
	return f, nil
}

// readRecords reads the records in a directory. The error is that it cannot be listed, or that there is a shortage.
func readRecords(dir string) (*found, error) {
	f := &found{records: map[string]*Record{}}
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, file := range files {
		uid, ok := strings.CutSuffix(file.Name(), ".json")
		if !ok || strings.HasPrefix(uid, ".") { // one that is being written, or one that was put aside
			continue
		}
		path := filepath.Join(dir, file.Name())
		r, err := readRecord(path, uid)
		if errors.Is(err, fs.ErrNotExist) { // given back in the meantime
			continue
		}
		if host.IsShortage(err) { // the record may be as it should
			return nil, err
		}
		if err == nil {
			f.records[uid] = r
			continue
		}
		_, system := errors.AsType[*fs.PathError](err)
		f.bad = append(f.bad, bad{uid, path, err, r, !system || errors.Is(err, wholefile.ErrTooLarge)})
	}
	return f, nil
}

// readRecord reads the record of a claim. Together with an error, the record is what can be understood of it.
func readRecord(path, uid string) (*Record, error) {
	data, err := wholefile.ReadTrusted(path, recordLimit)
	if err != nil {
		return nil, err
	}
	r, err := ParseRecord(data)
	if r != nil && r.UID != uid {
		return nil, fmt.Errorf("it is of the claim with the uid %s", r.UID)
	}
	return r, err
}

// adopt makes the record of a claim out of its CDI file.
func (s *Store) adopt(uid string) (*Record, error) {
	data, err := wholefile.ReadTrusted(cdi.ClaimFile(s.SpecDir, uid), recordLimit)
	if err != nil {
		return nil, err
	}
	c, err := cdi.ParseClaim(data, uid)
	if err != nil {
		return nil, err
	}
	r := s.recordOf(c)
	r.Since = time.Now().UTC().Truncate(time.Second)
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// Restore makes the checkpoint and the CDI files agree: at the start, before the driver registers, and whenever [Store.Missing] says so.
// The kubelet does not prepare a claim again for a container that it starts again, so the CDI file of each prepared claim has to be
// there. What was only started is rolled back. What is of an earlier boot is forgotten: no container of it runs, and for each new sandbox
// the kubelet prepares again. A record that cannot be used is put aside as UID.json.bad, and made anew of what is known
// otherwise. The findings say so, and which files cannot be written; the error is that nothing could be done.
func (s *Store) Restore(ctx context.Context) (findings finding.List, err error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	snapshot := s.Inventory()
	if snapshot == nil || snapshot.Inventory == nil {
		return nil, errNotRead
	}
	s.sweep(filepath.Join(s.Dir, DirName))
	s.sweep(s.SpecDir)
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	for _, b := range f.bad {
		s.putAside(b, f.adopted[b.uid], &findings)
	}
	maps.DeleteFunc(f.adopted, func(uid string, _ *Record) bool { return f.unconfirmed[uid] })
	for uid, r := range f.adopted {
		s.recordAnew(uid, r, &findings)
	}
	s.reportFiles(f, &findings)
	for _, r := range f.all() {
		if s.holds(r) {
			s.memory.learn(r)
		}
		if err := s.restore(r, snapshot.Inventory); err != nil {
			findings.Add(finding.ClaimFile, r.String(), "it cannot be written: "+host.Reason(err).Error(), "").At(cdi.ClaimFile(s.SpecDir, r.UID), 0)
		}
	}
	return findings, nil
}

// putAside puts a file of the checkpoint aside. One that could not be read stays: the next read may succeed.
func (s *Store) putAside(b bad, known *Record, findings *finding.List) {
	message := host.Reason(b.err).Error()
	if b.faulty {
		aside := b.path + quarantined
		if err := os.Rename(b.path, aside); err != nil {
			message += "; it cannot be put aside: " + err.Error()
		} else {
			message += "; it is put aside as " + aside
		}
	}
	subject := b.uid
	if known != nil {
		subject = known.String()
	} else {
		message += "; which LPUs the claim has is not known"
	}
	findings.Add(finding.ClaimRecord, subject, message, "").At(b.path, 0)
}

// recordAnew records a claim whose record was lost.
func (s *Store) recordAnew(uid string, r *Record, findings *finding.List) {
	r.Version = recordVersion
	if r.Since.IsZero() {
		r.Since = time.Now().UTC().Truncate(time.Second)
	}
	message := "its record was lost, and is made anew of what is known otherwise"
	if err := s.write(r); err != nil {
		message = "its record was lost, and cannot be made anew: " + host.Reason(err).Error()
	}
	findings.Add(finding.ClaimRecord, r.String(), message, "").At(s.record(uid), 0)
}

// reportFiles finds CDI files of claims that nothing else is known of, and that do not say themselves what they are of.
func (s *Store) reportFiles(f *found, findings *finding.List) {
	for uid, err := range f.strange {
		message := "nothing is known of this claim, and its file does not tell: " + host.Reason(err).Error()
		path := cdi.ClaimFile(s.SpecDir, uid)
		findings.Add(finding.ClaimFile, uid, message, "if no container has LPUs of this claim: rm "+path).At(path, 0)
	}
}

// restore makes the CDI file of a claim agree with its record. A claim that no container can have is forgotten.
func (s *Store) restore(r *Record, inv *discovery.Inventory) error {
	if !s.holds(r) {
		return s.remove(r.UID)
	}
	spec, err := fileOf(r, inv)
	if err != nil {
		return err
	}
	return s.render(r.UID, spec)
}

// sweep removes the temporary files that a killed process has left in a directory. The lock is held, so none is being written.
func (s *Store) sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name, _, ok := strings.Cut(strings.TrimPrefix(e.Name(), "."), ".json")
		_, isFile := cdi.ClaimUID(name + ".json")
		if ok && (isFile || dir != s.SpecDir) {
			wholefile.ClearLeftovers(filepath.Join(dir, name+".json"))
		}
	}
}

// Missing reports whether a record or a CDI file of a prepared claim is not there, or a record has to be put aside: then it is time for
// [Store.Restore].
func (s *Store) Missing() bool {
	f, err := s.read()
	if err != nil {
		return false // Restore could do nothing either
	}
	for _, r := range f.records {
		if !s.holds(r) {
			continue
		}
		s.memory.learn(r)
		if _, err := os.Lstat(cdi.ClaimFile(s.SpecDir, r.UID)); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return len(f.adopted) > 0 || slices.ContainsFunc(f.bad, func(b bad) bool { return b.faulty })
}

// Claims are the prepared claims, in the order of their uids. The error is that the checkpoint cannot be read.
func (s *Store) Claims() (claims []Record, err error) {
	claims, _, err = s.Inspect()
	return claims, err
}

// Inspect is Claims, and what is wrong with their records: which cannot be used, and whether it is known otherwise what their claims have.
func (s *Store) Inspect() (claims []Record, problems finding.List, err error) {
	f, err := s.read()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range f.all() {
		if s.holds(r) {
			claims = append(claims, *r)
		}
	}
	for _, b := range f.bad {
		message := host.Reason(b.err).Error()
		if r := f.adopted[b.uid]; r != nil {
			problems.Add(finding.ClaimRecord, r.String(), message+"; what the claim has is known otherwise",
				"nothing, while the DRA driver runs: it makes the record anew").At(b.path, 0)
		}
	}
	for _, u := range s.unknown(f) {
		problems.Add(finding.ClaimRecord, u.uid, host.Reason(u.err).Error()+"; which LPUs the claim has is not known", u.Remedy()).At(u.path, 0)
	}
	return claims, problems, nil
}

// UnknownError says of a file that it is a claim's, and that nothing else says which LPUs the claim has.
type UnknownError struct {
	path, uid string
	err       error
}

func (e *UnknownError) Error() string { return e.path + ": " + host.Reason(e.err).Error() }

func (e *UnknownError) Unwrap() error { return e.err }

// Remedy is what to do if no pod has the claim.
func (e *UnknownError) Remedy() string {
	if cdi.ValidUID(e.uid) {
		return fmt.Sprintf("if no pod has the claim %s: lpuctl cdi remove --claim %s", e.uid, e.uid)
	}
	return "no claim is called that: rm " + e.path
}

// unknown are the files of claims that cannot be used where nothing else says which LPUs the claims have.
func (s *Store) unknown(f *found) (all []*UnknownError) {
	for _, b := range f.bad {
		if f.adopted[b.uid] == nil {
			all = append(all, &UnknownError{b.path, b.uid, b.err})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(f.strange)) {
		all = append(all, &UnknownError{cdi.ClaimFile(s.SpecDir, uid), uid, f.strange[uid]})
	}
	return all
}

// Known are all claims of which there is anything, prepared or not. Of those that nothing can be read of it has the uid only.
func (s *Store) Known() (known []Record, err error) {
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	for _, r := range f.all() {
		known = append(known, *r)
	}
	add := func(uid string) {
		if !slices.ContainsFunc(known, func(r Record) bool { return r.UID == uid }) {
			known = append(known, Record{UID: uid})
		}
	}
	for _, b := range f.bad {
		add(b.uid)
	}
	for _, uid := range slices.Sorted(maps.Keys(f.strange)) {
		add(uid)
	}
	return known, nil
}

// Records are those of claims that a container can have, in a directory that is [node.StateDir], in the order of their uids. Of a
// boot that is not known (""), all records count. It takes no lock. The error says that not all is known, and why.
func Records(dir, bootID string) (prepared []*Record, err error) {
	f, err := readRecords(filepath.Join(dir, DirName))
	if err != nil {
		return nil, err
	}
	for _, r := range f.all() {
		if r.holds(bootID) {
			prepared = append(prepared, r)
		}
	}
	for _, b := range f.bad {
		err = errors.Join(err, fmt.Errorf("%s: %w", b.path, host.Reason(b.err)))
	}
	return prepared, err
}

// Holders returns which claim has which LPU. A caller who decides by it holds a lock that keeps claims from being prepared. The error says
// that not all is known: of a claim of which there is a broken file and nothing else, it is an [UnknownError].
func (s *Store) Holders() (map[discovery.Address]string, error) {
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	holders := map[discovery.Address]string{}
	for _, r := range f.all() {
		if !s.holds(r) {
			continue
		}
		for _, a := range r.Members() {
			holders[a] = "claim " + r.String()
		}
	}
	for _, u := range s.unknown(f) {
		err = errors.Join(err, u)
	}
	return holders, err
}
