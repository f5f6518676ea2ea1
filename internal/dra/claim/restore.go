package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// found is what the checkpoint says. Of a claim whose record is lost or cannot be used,
// it is what its CDI file says, the store remembers, or the kubelet says.
type found struct {
	records map[string]*Record // by uid
	bad     []bad
	adopted map[string]*Record // by uid: claims without a record that can be used
	// By uid: CDI files of claims of which nothing else is known, and why they do not tell
	// either.
	strange map[string]error

	// By uid, of adopted: there is no file of the claim, and another process may just have
	// given it back.
	unconfirmed map[string]bool
}

// of returns what is known of a claim, nil if nothing is.
func (f *found) of(uid string) *Record {
	if r := f.records[uid]; r != nil {
		return r
	}
	return f.adopted[uid]
}

// isBroken reports whether a claim has a file that cannot be used.
func (f *found) isBroken(uid string) bool {
	return f.strange[uid] != nil || slices.ContainsFunc(f.bad, func(b bad) bool { return b.uid == uid })
}

// bad is a file of the checkpoint that cannot be used.
type bad struct {
	uid string
	why *statefile.Error
}

// all are the claims, in the order of their uids.
func (f *found) all() []*Record {
	all := slices.AppendSeq(slices.Collect(maps.Values(f.records)), maps.Values(f.adopted))
	slices.SortFunc(all, func(a, b *Record) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// held are the claims whose LPUs a container can have, in the order of their uids.
func (f *found) held(boot string) []*Record {
	return slices.DeleteFunc(f.all(), func(r *Record) bool { return !r.holds(boot) })
}

// read reads the checkpoint, and of claims without a record that can be used, what is
// known otherwise.
func (s *Store) read() (*found, error) {
	f, err := readRecords(filepath.Join(s.Dir, DirName))
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(s.SpecDir)
	if err != nil && !host.IsAbsent(err) {
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
		} else if !host.IsAbsent(err) {
			f.strange[uid] = err
		}
	}
	for _, b := range f.bad {
		if newer, ok := errors.AsType[*newerError](b.why); ok && f.adopted[b.uid] == nil && newer.record != nil {
			f.adopted[b.uid] = newer.record
			delete(f.strange, b.uid)
		}
	}
	s.memory.recall(f)
	return f, nil
}

// readRecords reads the records in a directory. The error is that it cannot be listed, or
// that there is a shortage.
func readRecords(dir string) (*found, error) {
	f := &found{
		records: map[string]*Record{}, adopted: map[string]*Record{}, strange: map[string]error{}, unconfirmed: map[string]bool{},
	}
	files, err := os.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return nil, err
	}
	for _, file := range files {
		uid, ok := strings.CutSuffix(file.Name(), ".json")
		if !ok || strings.HasPrefix(uid, ".") { // one that is being written, or one that was put aside
			continue
		}
		r, err := RecordFile(dir, uid).Read()
		if host.IsShortage(err) { // the record may be as it should
			return nil, err
		}
		if why, ok := errors.AsType[*statefile.Error](err); ok {
			f.bad = append(f.bad, bad{uid, why})
		} else if r != nil { // else it was given back in the meantime
			f.records[uid] = r
		}
	}
	return f, nil
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
	err = r.check()
	return r, err
}

// Restore makes the checkpoint and the CDI files agree: at the start, before the driver
// registers, and whenever [Store.Missing] says so. The kubelet does not prepare a claim
// again for a container that it starts again, so the CDI file of each prepared claim has
// to be there. What was only started is rolled back. What is of an earlier boot is
// forgotten: no container of it runs, and for each new sandbox the kubelet prepares
// again. A record that cannot be used is put aside as UID.json.bad, and made again of what
// is known otherwise. The findings say so, and which files cannot be written; the error
// is that nothing could be done.
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
	for _, r := range f.adopted {
		s.recordAnew(r, &findings)
	}
	s.reportFiles(f, &findings)
	for _, r := range f.all() {
		if err := s.restore(r, snapshot.Inventory); err != nil {
			findings.Add(finding.ClaimFile, r.String(), "it cannot be written: "+host.Reason(err).Error(), "").At(cdi.ClaimFile(s.SpecDir, r.UID), 0)
		}
	}
	return findings, nil
}

// putAside puts a file of the checkpoint aside. One that could not be read stays: the
// next read may succeed. So does one of which nothing else is known until the kubelet has
// said what pods have: it alone keeps the other programs from giving away what the claim
// has.
func (s *Store) putAside(b bad, known *Record, findings *finding.List) {
	err := b.why.Err
	if b.why.Unusable && (known != nil || s.memory.hasHeard()) {
		err = s.record(b.uid).PutAside(err)
	}
	message := err.Error()
	subject := b.uid
	if known != nil {
		subject = known.String()
	} else {
		message += "; which LPUs the claim has is not known"
	}
	findings.Add(finding.ClaimRecord, subject, message, "").At(b.why.Path, 0)
}

// recordAnew records a claim whose record was lost.
func (s *Store) recordAnew(r *Record, findings *finding.List) {
	r.Version = recordVersion
	if r.Since.IsZero() {
		r.Since = time.Now().UTC().Truncate(time.Second)
	}
	message := "its record was lost, and is made anew of what is known otherwise"
	if err := s.write(r); err != nil {
		message = "its record was lost, and cannot be made anew: " + host.Reason(err).Error()
	}
	findings.Add(finding.ClaimRecord, r.String(), message, "").At(s.record(r.UID).Path, 0)
}

// reportFiles finds CDI files of claims that nothing else is known of, and that do not
// say themselves what they are of.
func (s *Store) reportFiles(f *found, findings *finding.List) {
	for uid, err := range f.strange {
		message := "nothing is known of this claim, and its file does not tell: " + host.Reason(err).Error()
		path := cdi.ClaimFile(s.SpecDir, uid)
		findings.Add(finding.ClaimFile, uid, message, "if no container has LPUs of this claim: rm "+path).At(path, 0)
	}
}

// restore makes the CDI file of a claim agree with its record. A claim that no container
// can have is forgotten.
func (s *Store) restore(r *Record, inv *discovery.Inventory) error {
	if !s.holds(r) {
		return s.remove(r.UID)
	}
	s.memory.learn(r)
	spec, err := s.fileOf(r, inv)
	if err != nil {
		return err
	}
	return s.render(r.UID, spec)
}

// sweep removes the temporary files that a killed process has left in a directory. The
// lock is held, so none is being written.
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

// Missing reports whether a record or a CDI file of a prepared claim is not there, or a
// ring table that the file names, or whether the file names that of other cables, or a
// record has to be put aside: then it is time for [Store.Restore].
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
		if _, err := os.Lstat(cdi.ClaimFile(s.SpecDir, r.UID)); host.IsAbsent(err) || s.isStale(r) {
			return true
		}
	}
	return len(f.adopted) > 0 || slices.ContainsFunc(f.bad, func(b bad) bool { return b.why.Unusable })
}

// isStale reports whether the CDI file of a claim names another ring table than it would
// if it were made now, or one that is not in place.
func (s *Store) isStale(r *Record) bool {
	inv, err := s.inventory()
	if err != nil {
		return false
	}
	now, err := cdi.ClaimSpec(inv, claimOf(r), cdi.Options{})
	have, readErr := wholefile.ReadTrusted(cdi.ClaimFile(s.SpecDir, r.UID), recordLimit)
	return err == nil && readErr == nil && !cdi.HasRingTables(s.Root, have, now)
}

// Claims are the prepared claims, in the order of their uids. The error is that the
// checkpoint cannot be read.
func (s *Store) Claims() (claims []*Record, err error) {
	claims, _, err = s.Inspect()
	return claims, err
}

// Inspect is Claims, and what is wrong with their records: which cannot be used, and
// whether it is known otherwise what their claims have.
func (s *Store) Inspect() (claims []*Record, problems finding.List, err error) {
	f, err := s.read()
	if err != nil {
		return nil, nil, err
	}
	for _, b := range f.bad {
		message := b.why.Err.Error()
		if r := f.adopted[b.uid]; r != nil {
			problems.Add(finding.ClaimRecord, r.String(), message+"; what the claim has is known otherwise",
				"nothing, while the DRA driver runs: it makes the record anew").At(b.why.Path, 0)
		}
	}
	for _, u := range s.unknown(f) {
		problems.Add(finding.ClaimRecord, u.uid, host.Reason(u.err).Error()+"; which LPUs the claim has is not known", u.Remedy()).At(u.path, 0)
	}
	return f.held(s.BootID), problems, nil
}

// UnknownError says of a file that it is a claim's, and that nothing else says which LPUs
// the claim has.
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

// unknown are the files of claims that cannot be used where nothing else says which LPUs
// the claims have.
func (s *Store) unknown(f *found) (all []*UnknownError) {
	for _, b := range f.bad {
		if f.adopted[b.uid] == nil {
			all = append(all, &UnknownError{b.why.Path, b.uid, b.why.Err})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(f.strange)) {
		all = append(all, &UnknownError{cdi.ClaimFile(s.SpecDir, uid), uid, f.strange[uid]})
	}
	return all
}

// Known are all claims of which there is anything, prepared or not. Of those that nothing
// can be read of it has the uid only.
func (s *Store) Known() ([]*Record, error) {
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	known := f.all()
	for _, u := range s.unknown(f) { // one may have two files that cannot be used
		if !slices.ContainsFunc(known, func(r *Record) bool { return r.UID == u.uid }) {
			known = append(known, &Record{UID: u.uid})
		}
	}
	return known, nil
}

// Records are those of claims that a container can have, in a directory that is
// [node.StateDir], in the order of their uids. Of a boot that is not known (""), all
// records count. It takes no lock. The error says that not all is known, and why.
func Records(dir, bootID string) (prepared []*Record, err error) {
	f, err := readRecords(filepath.Join(dir, DirName))
	if err != nil {
		return nil, err
	}
	for _, b := range f.bad {
		err = errors.Join(err, b.why)
	}
	return f.held(bootID), err
}

// Holders returns which claim has which LPU. A caller who decides by it holds a lock that
// keeps claims from being prepared. The error says that not all is known: of a claim of
// which there is a broken file and nothing else, it is an [UnknownError].
func (s *Store) Holders() (map[pci.Address]string, error) {
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	holders := map[pci.Address]string{}
	for _, r := range f.held(s.BootID) {
		for _, a := range r.Members() {
			holders[a] = "claim " + r.String()
		}
	}
	for _, u := range s.unknown(f) {
		err = errors.Join(err, u)
	}
	return holders, err
}
