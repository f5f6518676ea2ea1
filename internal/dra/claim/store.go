// Package claim keeps who has which LPU by a prepared claim of Kubernetes, and writes the
// CDI file of each. It decides nothing: the scheduler has allocated the claim. What it
// never does is to give one LPU to two claims.
//
// The checkpoint is a directory with a file for each claim, so that one that cannot be
// used is in no other's way, and so that a claim can be given back on a full disk. A
// claim is recorded as started, then its CDI file is written, then it is recorded as
// completed, and only then the kubelet gets the answer: whenever the process dies,
// [Store.Restore] knows what to make of the rest. The CDI file of a claim says all that
// the record does, so each can be made again of the other. If both are lost the store
// knows what it has prepared, and the kubelet says what its pods have ([Store.Hear]). Any
// one of these is enough for a claim to keep its LPUs.
package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Which variables a request sets besides those that are the claim's own.
const (
	List = "list" // those that describe the LPUs of a container as a whole
	None = "none" // no others
)

// Claim is a claim as the scheduler has allocated it. Requests are those with devices of
// this driver.
type Claim struct {
	Namespace, Name, UID string
	Requests             []Request
}

// Request is one request of a claim, with the devices that it was given.
type Request struct {
	Name      string   // as in the allocation: with the subrequest, "big/four", if there is one
	Devices   []string // names in the ResourceSlice
	Variables string   // List or None; "" is List
}

// Prepared is a device that a container can be given.
type Prepared struct {
	Request, Device string
	CDI             []string      // qualified names of CDI devices
	Members         []pci.Address // its LPUs, in ring order
}

// Devices knows the LPUs of published devices.
type Devices interface {
	// Members are the LPUs of a device in ring order. The error names the device, and
	// wraps ErrUnknown or ErrRecabled.
	Members(device string) ([]pci.Address, error)
}

// Store keeps the prepared claims of a node. Its methods may be called at the same time,
// by several processes too.
type Store struct {
	Root    host.Root // of the node: where the ring tables of containers go
	Dir     string    // node.StateDir as a path of this machine
	SpecDir string    // where the CDI files of the claims go, as a path of this machine
	Kind    string    // the CDI kind of the LPUs; "": cdi.DefaultKind
	Devices Devices   // of published devices
	// Refuse says why an LPU must not be given now; nil: it may. It is asked when a claim
	// is prepared that was not before. It may be nil.
	Refuse func(pci.Address) error
	// Inventory is the latest snapshot of the node.
	Inventory func() *node.Snapshot
	BootID    string // host.Moment; "": records of any boot count
	// Confirm is called with the LPUs of a claim that was not prepared before, when all
	// is written but that it is. With an error it is not prepared. It may be nil.
	Confirm func(context.Context, []pci.Address) error
	Log     *slog.Logger // nil: nothing is logged

	tableFault atomic.Value // why the latest ring tables could not be put in place, as text

	memory memory
}

// Prepare gives a claim its LPUs: it records who has them, and writes the CDI file of the
// claim. It may be called again for a claim that is prepared, and then sees to it that
// the file is there. It fails if an LPU is another claim's, or is not there, or must not
// be given now to a claim that was not prepared before; then nothing is recorded of such
// a one.
func (s *Store) Prepare(ctx context.Context, c Claim) ([]Prepared, error) {
	prepared, err := s.prepare(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return prepared, nil
}

func (s *Store) prepare(ctx context.Context, c Claim) ([]Prepared, error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	// If ctx has ended, the kubelet has given up, and may have asked for the claim to be
	// given back.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inv, err := s.inventory()
	if err != nil {
		return nil, err
	}
	r, err := s.resolve(inv, c)
	if err != nil {
		return nil, err
	}
	spec, err := s.fileOf(r, inv)
	if err != nil {
		return nil, err
	}
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	if !s.has(f, r) {
		if err := s.refuse(r); err != nil {
			return nil, err
		}
	}
	if err := s.clear(f, r); err != nil {
		return nil, err
	}
	s.mark(f, inv, r)
	if err := s.keep(ctx, f, r, spec); err != nil {
		return nil, err
	}
	s.memory.learn(r)
	return s.prepared(r), nil
}

// mark notes which ring tables the containers of a claim have, and over which file of the
// host. Those of a claim that is prepared may have been there before the file that is
// there now.
func (s *Store) mark(f *found, inv *discovery.Inventory, r *Record) {
	if s.has(f, r) {
		return
	}
	if err := cdi.MarkClaim(s.Root, inv, claimOf(r)); err != nil && s.Log != nil {
		s.Log.Warn("it will not be seen if a container loses its ring table", "claim", r.String(), "error", err)
	}
}

// keep records a claim and writes its CDI file, as far as that has not been done. A claim
// that is prepared stays so, whatever fails: a container may run with its LPUs.
func (s *Store) keep(ctx context.Context, f *found, r *Record, spec []byte) error {
	have := f.of(r.UID)
	if have != nil {
		r.rest = have.rest
	}
	switch {
	case !s.has(f, r):
		err := s.put(ctx, r, spec)
		if err != nil {
			err = errors.Join(err, s.remove(r.UID))
		}
		return err
	case f.records[r.UID] != nil && have.same(r):
		return s.render(r.UID, spec)
	}
	r.State = completed
	return errors.Join(s.write(r), s.render(r.UID, spec))
}

// has reports whether the claim of a record is prepared already, with the same LPUs.
func (s *Store) has(f *found, r *Record) bool {
	return s.isPrepared(f, r.UID) && f.of(r.UID).sameLPUs(r)
}

// isPrepared reports whether a claim is prepared. What only the kubelet says of it does
// not count until it is confirmed: its answer may be from before the claim was given
// back.
func (s *Store) isPrepared(f *found, uid string) bool {
	have := f.of(uid)
	return have != nil && s.holds(have) && !f.unconfirmed[uid]
}

// Prepared reports whether a claim is prepared. If the checkpoint cannot be read it is
// not known to be.
func (s *Store) Prepared(uid string) bool {
	f, err := s.read()
	return err == nil && s.isPrepared(f, uid)
}

// lock takes the lock of the checkpoint.
func (s *Store) lock(ctx context.Context) (*os.File, error) {
	return filelock.Hold(ctx, filepath.Join(s.Dir, "claims.json"))
}

// resolve makes the record of a claim, if all of its LPUs are there.
func (s *Store) resolve(inv *discovery.Inventory, c Claim) (*Record, error) {
	r := &Record{
		Version: recordVersion, Boot: s.BootID, State: started,
		Since: time.Now().UTC().Truncate(time.Second), Namespace: c.Namespace, Name: c.Name, UID: c.UID,
	}
	for _, q := range c.Requests {
		request := RecordRequest{Name: q.Name, Variables: cmp.Or(q.Variables, List)}
		for _, name := range q.Devices {
			members, err := s.members(inv, name)
			if errors.Is(err, ErrRecabled) || errors.Is(err, ErrUnknown) {
				err = fmt.Errorf("%w; delete the claim (of a pod with a template: the pod), so that it is allocated anew: "+
					"kubectl --namespace %s delete resourceclaim %s", err, c.Namespace, c.Name)
			}
			if err != nil {
				return nil, fmt.Errorf("request %s: %w", q.Name, err)
			}
			request.Devices = append(request.Devices, RecordDevice{name, members})
		}
		r.Requests = append(r.Requests, request)
	}
	err := r.check()
	return r, err
}

var errNotRead = errors.New("the machine has not been read yet")

// inventory is what is on the node now.
func (s *Store) inventory() (*discovery.Inventory, error) {
	snapshot := s.Inventory()
	if snapshot == nil || snapshot.Inventory == nil {
		return nil, errNotRead
	}
	return snapshot.Inventory, snapshot.Fresh(time.Now(), node.MaxAge)
}

// members are the LPUs of a device, each of which is there.
func (s *Store) members(inv *discovery.Inventory, device string) ([]pci.Address, error) {
	members, err := s.Devices.Members(device)
	if err != nil {
		return nil, err
	}
	for _, a := range members {
		i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address == a })
		if i < 0 || len(inv.LPUs[i].Nodes) == 0 {
			return nil, fmt.Errorf("device %s: LPU %s is not given: it has no device node", device, a)
		}
	}
	return members, nil
}

// refuse returns why an LPU of a claim must not be given now.
func (s *Store) refuse(r *Record) error {
	if s.Refuse == nil {
		return nil
	}
	for _, q := range r.Requests {
		for _, d := range q.Devices {
			for _, a := range d.Members {
				if err := s.Refuse(a); err != nil {
					return fmt.Errorf("request %s: device %s: LPU %s is not given: %w", q.Name, d.Name, a, err)
				}
			}
		}
	}
	return nil
}

// clear makes sure that no other claim has an LPU of a claim. A claim that was only
// started has no LPU, and is rolled back.
func (s *Store) clear(f *found, r *Record) error {
	wanted := r.Members()
	for _, other := range f.all() {
		shared := slices.IndexFunc(other.Members(), func(a pci.Address) bool { return slices.Contains(wanted, a) })
		if other.UID == r.UID || shared < 0 {
			continue
		}
		if s.holds(other) {
			return fmt.Errorf("LPU %s is not given: %w: %s", other.Members()[shared], ErrTaken, other)
		}
		if err := s.remove(other.UID); err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether a container can have the LPUs of a record.
func (s *Store) holds(r *Record) bool { return r.holds(s.BootID) }

func (r *Record) holds(boot string) bool { return r.State == completed && sameBoot(r.Boot, boot) }

// sameBoot reports whether two boots are one, or cannot be distinguished.
func sameBoot(a, b string) bool { return a == b || a == "" || b == "" }

// put records a claim and writes its CDI file. If it fails, or the process dies, the
// claim is not completed.
func (s *Store) put(ctx context.Context, r *Record, spec []byte) error {
	if err := s.write(r); err != nil {
		return err
	}
	if err := s.render(r.UID, spec); err != nil {
		return err
	}
	if s.Confirm != nil {
		if err := s.Confirm(ctx, r.Members()); err != nil {
			return err
		}
	}
	r.State = completed
	return s.write(r)
}

func (s *Store) write(r *Record) error {
	f := s.record(r.UID)
	wholefile.ClearLeftovers(f.Path)
	return f.Write(r)
}

// DirName is the name of the checkpoint in [node.StateDir].
const DirName = "dra-claims"

// record is the file of a claim's record.
func (s *Store) record(uid string) statefile.File[Record] {
	return RecordFile(filepath.Join(s.Dir, DirName), uid)
}

// fileOf is what the CDI file of a claim says. It puts the ring tables in place that the
// file names. If they cannot be written, the file names none.
func (s *Store) fileOf(r *Record, inv *discovery.Inventory) ([]byte, error) {
	c := claimOf(r)
	tables := cdi.WriteClaimTables(s.Root, inv, c)
	fault := fmt.Sprint(tables)
	// It is tried again and again: only another fault is logged.
	if before := s.tableFault.Swap(fault); tables != nil && before != fault && s.Log != nil {
		s.Log.Warn("containers of a claim get no ring table of their own", "claim", c.String(), "error", tables)
	}
	spec, err := cdi.ClaimSpec(inv, c, cdi.Options{TablesIn: s.Root})
	if err != nil {
		return nil, err
	}
	return cdi.Marshal(spec)
}

// claimOf is the claim of a record as its CDI file says it.
func claimOf(r *Record) cdi.Claim {
	c := cdi.Claim{Namespace: r.Namespace, Name: r.Name, UID: r.UID}
	for _, q := range r.Requests {
		request := cdi.ClaimRequest{Name: q.base(), List: q.Variables != None}
		for _, d := range q.Devices {
			request.Devices = append(request.Devices, cdi.ClaimDevice{Name: d.Name, LPUs: d.Members})
		}
		c.Requests = append(c.Requests, request)
	}
	return c
}

// base is the name of the request in the claim's spec.
func (q *RecordRequest) base() string {
	base, _, _ := strings.Cut(q.Name, "/")
	return base
}

// render writes the CDI file of a claim, unless it is right already.
func (s *Store) render(uid string, spec []byte) error {
	path := cdi.ClaimFile(s.SpecDir, uid)
	wholefile.ClearLeftovers(path)
	return wholefile.Keep(path, spec)
}

// prepared is what the kubelet learns of a claim. The claim's own device comes with the
// first of a request: a container gets all of them.
func (s *Store) prepared(r *Record) (all []Prepared) {
	kind := cmp.Or(s.Kind, cdi.DefaultKind)
	for _, q := range r.Requests {
		for i, d := range q.Devices {
			p := Prepared{Request: q.Name, Device: d.Name, Members: slices.Clone(d.Members)}
			for _, a := range d.Members {
				p.CDI = append(p.CDI, kind+"="+cdi.AddressName(a))
			}
			if i == 0 {
				p.CDI = append(p.CDI, cdi.ClaimKind+"="+cdi.ClaimDeviceName(r.UID, q.base()))
			}
			all = append(all, p)
		}
	}
	return all
}

// Unprepare takes the LPUs of a claim back. One that is not known has none.
func (s *Store) Unprepare(ctx context.Context, uid string) error {
	if !cdi.ValidUID(uid) {
		return nil
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.remove(uid); err != nil {
		return err
	}
	s.memory.forget(uid)
	return nil
}

// remove forgets a claim. The record goes last: a CDI file without one would be taken for
// a claim whose record was lost.
func (s *Store) remove(uid string) error {
	record := s.record(uid)
	for _, path := range []string{cdi.ClaimFile(s.SpecDir, uid), record.Aside(), record.Path} {
		wholefile.ClearLeftovers(path)
		// Of a read-only file system not even this can be removed.
		if _, err := os.Lstat(path); host.IsAbsent(err) {
			continue
		}
		if err := os.Remove(path); err != nil && !host.IsAbsent(err) {
			return err
		}
	}
	return nil
}
