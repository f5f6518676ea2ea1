package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Spec is the CDI spec that must define an LPU before it is handed out. The zero value needs none.
type Spec struct {
	File    cdi.File
	Options cdi.Options
}

// specCheck is the result of a look at the CDI spec on disk.
type specCheck struct {
	want       string            // the spec that should be there
	numbers    map[string]string // of the device nodes, by path
	files      []string          // the file, and the state of each spec file in its directory; nil: look again the next time
	unresolved []string          // names of LPUs that no runtime resolves to their nodes; they must not be handed out
	drift      cdi.Drift
	err        error // why the spec is not as it should be
}

// The spec is written at most maxWrites times within writePeriod, so that two programs that disagree, or a card that comes and goes,
// do not keep the runtimes busy. A name that could lead to another card's node is corrected at once nevertheless.
const (
	maxWrites   = 2
	writePeriod = time.Minute
)

// upkeep is what a node remembers of the spec between two snapshots.
type upkeep struct {
	writes []time.Time // the latest, at most maxWrites
	renew  bool        // correct differences too that are only reported otherwise
}

// checkSpec looks at the spec on disk, unless nothing has changed since it looked the last time.
func (n *Node) checkSpec(spec Spec, inv *discovery.Inventory, before specCheck) specCheck {
	if spec.File.Path == "" {
		return specCheck{}
	}
	want, err := wanted(inv, spec.Options)
	check := specCheck{files: specFiles(spec.File), numbers: numbers(inv)}
	if want != nil {
		text, _ := cdi.Marshal(want) // what cannot be marshalled cannot be written either, and that is an error there
		check.want = string(text)
	}
	if before.files != nil && slices.Equal(check.files, before.files) && check.want == before.want &&
		maps.Equal(check.numbers, before.numbers) {
		return before
	}
	var driftErr, conflictErr error
	check.drift, driftErr = spec.File.Drift(inv, want)
	check.drift.Wrong = append(check.drift.Wrong, renumbered(inv, check.numbers, before.numbers)...)
	bad := slices.Concat(check.drift.Wrong, check.drift.Missing)
	if want != nil {
		conflictErr = spec.File.Conflict(want)
	}
	if c, ok := errors.AsType[*cdi.Conflict](conflictErr); ok {
		bad = append(bad, c.Devices...)
	}
	for _, l := range inv.LPUs {
		if name := cdi.AddressName(l.Address); len(l.Nodes) > 0 && (err != nil || slices.Contains(bad, name)) {
			check.unresolved = append(check.unresolved, name)
		}
	}
	check.err = cmp.Or(err, conflictErr, driftErr)
	return check
}

// numbers are the device numbers of all nodes of LPUs, by path.
func numbers(inv *discovery.Inventory) map[string]string {
	all := map[string]string{}
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			all[n.Path] = fmt.Sprint(n.Major, ":", n.Minor)
		}
	}
	return all
}

// renumbered are names of LPUs with a node that had other numbers before. The spec does not say the numbers, but runtimes remember
// them until it is written again.
func renumbered(inv *discovery.Inventory, now, before map[string]string) (names []string) {
	for _, l := range inv.LPUs {
		if slices.ContainsFunc(l.Nodes, func(n discovery.Node) bool { return before[n.Path] != "" && before[n.Path] != now[n.Path] }) {
			names = append(names, cdi.AddressName(l.Address))
		}
	}
	return names
}

// wanted is the spec of an inventory; nil if no LPU has a node.
func wanted(inv *discovery.Inventory, o cdi.Options) (*specs.Spec, error) {
	spec, _, err := cdi.Spec(inv, o)
	if errors.Is(err, cdi.ErrNoDevices) {
		return nil, nil
	}
	return spec, err
}

// specFiles is the state of each file in the directory of the spec: an edit of any of them can change what names mean.
func specFiles(file cdi.File) []string {
	entries, err := os.ReadDir(filepath.Dir(file.Path))
	states := []string{file.Path, fmt.Sprint(err)}
	for _, e := range entries {
		var st unix.Stat_t
		name := filepath.Join(filepath.Dir(file.Path), e.Name())
		if filepath.Ext(name) != ".lock" && unix.Stat(name, &st) == nil { // of a link, what it leads to
			states = append(states, fmt.Sprint(name, st.Ino, st.Ctim)) // the time of the last change of what it says, or of its mode
		}
	}
	return states
}

// due tells whether a spec that was looked at is to be written now.
func (n *Node) due(check specCheck) bool {
	d := check.drift
	switch {
	case len(d.Wrong) > 0:
		return true
	case len(d.Missing) > 0 || n.upkeep.renew && len(d.Other) > 0:
		oldest := len(n.upkeep.writes) - maxWrites
		return oldest < 0 || n.Now().Sub(n.upkeep.writes[oldest]) >= writePeriod
	}
	return false
}

// putSpec corrects the spec under its lock, of what the machine is then, and returns that inventory. The boot unit owns the file, so
// it is left alone if it is right by then.
func (n *Node) putSpec(ctx context.Context, spec Spec, before specCheck, scan Scan) (*discovery.Inventory, specCheck, error) {
	held, err := spec.File.Hold(ctx)
	if err != nil {
		return nil, specCheck{}, err
	}
	defer held.Release()
	inv, err := scan(ctx)
	if err != nil {
		return nil, specCheck{}, err
	}
	check := n.checkSpec(spec, inv, specCheck{numbers: before.numbers})
	if !n.due(check) {
		return inv, check, nil
	}
	want, err := wanted(inv, spec.Options)
	switch {
	case err != nil:
	case want == nil:
		_, err = held.Remove()
	default:
		err = held.Write(want)
	}
	if err != nil {
		return inv, check, err
	}
	n.upkeep.writes = append(n.upkeep.writes, n.Now())
	n.upkeep.writes = n.upkeep.writes[max(0, len(n.upkeep.writes)-maxWrites):]
	n.specWrites.Add(1)
	n.log.Info("wrote the CDI spec", "file", spec.File.Path, "because", check.drift.String())
	return inv, n.checkSpec(spec, inv, specCheck{}), nil
}
