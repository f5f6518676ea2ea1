package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Spec is the CDI spec that must define an LPU before it is handed out. The zero value
// needs none.
type Spec struct {
	File    cdi.File
	Options cdi.Options
	// Orders are those in which runtimes read files beside ours, by which a name may lead
	// to another LPU; none: none is read elsewhere.
	Orders []cdi.Order
	// ReadOnly: the spec is compared and never written. An LPU that it does not define is
	// none the less healthy for it.
	ReadOnly bool
}

// specCheck is the result of a look at the CDI spec on disk.
type specCheck struct {
	asked string               // what the spec was asked to be
	inv   *discovery.Inventory // what it was compared with
	want  string               // the spec that should be there
	// The file, and the state of each file that runtimes read; nil: look again the next
	// time.
	files []string
	// Names of LPUs that no runtime resolves to their nodes; they must not be handed out.
	unresolved []string
	faults     finding.List // names of ours that lead to other LPUs' nodes, by whatever file
	drift      cdi.Drift
	err        error // why the spec is not as it should be
	tables     error // why ring tables cannot be written, without which the spec is right then
}

// right reports whether the spec in place is the one that would be made now.
func (c *specCheck) right() bool {
	return c.err == nil && len(c.unresolved)+len(c.faults) == 0 && !c.drift.Any()
}

// The spec is written at most maxWrites times within writePeriod because of one name, so
// that two programs that disagree, or a card that comes and goes, do not keep the
// runtimes busy, and other cards need not wait. A name that could lead to another card's
// node is corrected at once nevertheless. What is written when a program starts does not
// count.
const (
	maxWrites   = 2
	writePeriod = time.Minute
)

// upkeep is what a node remembers of the spec between two snapshots.
type upkeep struct {
	writes map[string][]time.Time // because of a name: the latest, at most maxWrites
	renew  bool                   // correct differences too that are only reported otherwise
	file   string                 // the state of the spec file
	// The nodes, by path, as they were when the file was first seen in this state.
	numbers map[string]discovery.Node
}

// renumbered returns the names of LPUs whose nodes may have other device numbers than
// when the spec file was written: at the first look, nodes that are younger than the
// file, later those whose numbers changed since the file was first seen in its present
// state. A runtime remembers the numbers of a node with the spec, and makes nodes of
// them, until the file is another one.
func (u *upkeep) renumbered(file cdi.File, inv *discovery.Inventory) (names []string) {
	first := u.numbers == nil
	if state := host.State(file.Path); first || state != u.file {
		u.file, u.numbers = state, map[string]discovery.Node{}
	}
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			was, seen := u.numbers[n.Path]
			if !seen {
				if !first || !file.Precedes(n.Path) {
					was = n // else no numbers at all, until the file is another one
				}
				u.numbers[n.Path] = was
			}
			name := cdi.AddressName(l.Address)
			if (was.Major != n.Major || was.Minor != n.Minor) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// checkSpec looks at the spec on disk, unless nothing has changed since it looked the
// last time.
func (n *Node) checkSpec(spec Spec, inv *discovery.Inventory, before specCheck) specCheck {
	if spec.File.Path == "" {
		return specCheck{}
	}
	check := specCheck{asked: fmt.Sprint(spec.File.Path, spec.Options), inv: inv, files: specFiles(spec)}
	rests := before.files != nil && slices.Equal(check.files, before.files) && !before.drift.Names()
	if rests && inv == before.inv && check.asked == before.asked {
		return before
	}
	want, tables, err := spec.wanted(inv)
	check.tables = tables
	if want != nil {
		// What cannot be marshalled cannot be written either, and that is an error there.
		text, _ := json.Marshal(want)
		check.want = string(text)
	}
	renumbered := n.upkeep.renumbered(spec.File, inv)
	if rests && check.want == before.want && len(renumbered) == 0 {
		before.asked, before.inv = check.asked, inv
		return before
	}
	want, conflictErr := spec.writable(want)
	var driftErr error
	check.drift, driftErr = spec.drift(inv, want)
	check.drift.Wrong = append(check.drift.Wrong, renumbered...)
	check.err = cmp.Or(err, conflictErr, driftErr)
	bad := slices.Concat(check.drift.Wrong, check.drift.Dangling, check.drift.Missing)
	if c, ok := errors.AsType[*cdi.Conflict](conflictErr); ok {
		bad = append(bad, c.Devices...)
	}
	if !spec.ReadOnly {
		var faultsErr error
		check.faults, faultsErr = spec.File.Faults(inv, spec.Orders)
		if faultsErr != nil { // what cannot be read now may have changed by the next time
			check.err, check.files = cmp.Or(check.err, faultsErr), nil
		}
		check.unresolved = namesOf(inv, func(name string) bool { return err != nil || slices.Contains(bad, name) })
	}
	return check
}

// drift is how the spec in place differs from the one that should be there.
func (s *Spec) drift(inv *discovery.Inventory, want *specs.Spec) (cdi.Drift, error) {
	d, err := s.File.Drift(inv, want)
	// With this finding it is not known which ring tables containers should have.
	if inv.Problems.Has(finding.MountStalled) {
		d.Tables, d.Other = nil, slices.Concat(d.Tables, d.Other)
	}
	return d, err
}

// writable is what can be written of a spec ([cdi.File.Writable]); nil is nothing.
func (s *Spec) writable(want *specs.Spec) (*specs.Spec, error) {
	if want == nil {
		return nil, nil
	}
	want, err := s.File.Writable(want)
	if s.ReadOnly && errors.Is(err, fs.ErrNotExist) { // without the directory there is just no spec
		err = nil
	}
	return want, err
}

// namesOf are the names by PCI address of those LPUs that have a node.
func namesOf(inv *discovery.Inventory, wanted func(name string) bool) (names []string) {
	for _, l := range inv.LPUs {
		if name := cdi.AddressName(l.Address); len(l.Nodes) > 0 && wanted(name) {
			names = append(names, name)
		}
	}
	return names
}

// wanted returns the spec of an inventory, nil if no LPU has a node. It puts the ring
// tables in place that the spec names. tables is why not all can be written.
func (s *Spec) wanted(inv *discovery.Inventory) (spec *specs.Spec, tables, err error) {
	if s.ReadOnly {
		spec, _, err = cdi.Spec(inv, s.Options)
	} else {
		spec, _, tables, err = cdi.SpecAndTables(s.File.Root, inv, s.Options)
	}
	if errors.Is(err, cdi.ErrNoDevices) {
		return nil, nil, nil
	}
	return spec, tables, err
}

// specFiles is the state of each file beside the spec and in the other directories that
// runtimes read: an edit of any of them can change what names mean.
func specFiles(spec Spec) []string {
	states := []string{spec.File.Path, fmt.Sprint(spec.Orders), host.State(spec.File.RingTables())}
	for _, dir := range spec.File.Dirs(spec.Orders) {
		entries, err := os.ReadDir(dir)
		states = append(states, fmt.Sprint(err))
		for _, e := range entries {
			if name := filepath.Join(dir, e.Name()); filepath.Ext(name) != ".lock" {
				states = append(states, host.State(name))
			}
		}
	}
	return states
}

// fault says why the LPU with these names must not be handed out; nil if a container gets
// its nodes by both.
func (c *specCheck) fault(names ...string) *finding.Finding {
	for _, f := range c.faults {
		if slices.Contains(names, f.Subject) {
			why := finding.New(finding.NodeWrong, "", fmt.Sprintf("%s: %s %s", f.File, f.Subject, f.Message), f.Remedy)
			return &why
		}
	}
	return nil
}

// due reports whether a spec that was looked at is to be written now.
func (n *Node) due(check specCheck) bool {
	d := check.drift
	switch {
	case len(d.Wrong) > 0:
		return true
	case n.upkeep.renew:
		return slices.ContainsFunc(d.All(), n.mayWrite)
	}
	return slices.ContainsFunc(slices.Concat(d.Dangling, d.Missing, d.Tables), n.mayWrite)
}

// mayWrite reports whether the spec may be written because of a name.
func (n *Node) mayWrite(name string) bool {
	writes := n.upkeep.writes[name]
	return len(writes) < maxWrites || n.Now().Sub(writes[0]) >= writePeriod
}

// written notes that the spec was written because of these names. It forgets what is too
// old to count.
func (n *Node) written(names []string) {
	for name, times := range n.upkeep.writes {
		if n.Now().Sub(times[len(times)-1]) >= writePeriod {
			delete(n.upkeep.writes, name)
		}
	}
	for _, name := range names {
		times := n.upkeep.writes[name]
		n.upkeep.writes[name] = append(times[max(0, len(times)+1-maxWrites):], n.Now())
	}
}

// correct corrects the spec under its lock, of what a second scan shows then, and returns
// that inventory and what the spec is after it; without a second scan those from before.
// The error is that of the check. The boot unit owns the file, so it is left alone if it
// is right by then.
func (n *Node) correct(
	ctx context.Context, spec Spec, scan Scan, inv *discovery.Inventory, check specCheck, before *Snapshot,
) (*discovery.Inventory, specCheck) {
	n.tellWorse(inv, before)
	held, err := spec.File.Hold(ctx)
	if err != nil {
		check.err = err
		return inv, check
	}
	defer held.Release()
	again, err := n.scan(ctx, scan)
	if err != nil {
		check.err = err
		return inv, check
	}
	if ctx.Err() == nil {
		n.tellWorse(again, before) // more may have gone since: a switch takes its cards along one by one
	}
	check = n.checkSpec(spec, again, specCheck{})
	if !n.due(check) {
		return again, check
	}
	want, _, err := spec.wanted(again)
	switch {
	case err != nil:
	case want == nil:
		_, err = held.Remove()
	default:
		err = held.Write(want)
	}
	if _, conflict := errors.AsType[*cdi.Conflict](err); err != nil && !conflict {
		check.err = err
		return again, check
	}
	n.written(check.drift.All())
	n.specWrites.Add(1)
	n.log.Info("wrote the CDI spec", "file", spec.File.Path, "because", check.drift.String())
	return again, n.checkSpec(spec, again, specCheck{})
}
