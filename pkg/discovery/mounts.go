package discovery

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// readMounts checks which mounts of a model exist on this machine, and whether a ring
// table can be mounted in them.
func (s *scan) readMounts(ctx context.Context, m *Model) {
	type found struct {
		mounts []Mount
		place  TablePlace
	}
	f, err := stall.Within(ctx, s.reads, "mounts of "+m.Name, s.CardDeadline, func() (found, error) {
		seen := slices.Clone(m.Mounts)
		for i := range seen {
			seen[i].Present = s.tree.Exists(seen[i].HostPath)
		}
		return found{seen, s.tablePlace(seen, m.RingTable)}, nil
	})
	if err != nil {
		s.problems.Add(finding.MountStalled, m.Name, fmt.Sprintf("one of the paths that containers need does not answer: %v", m.Mounts), "")
		return
	}
	m.Mounts, m.place = f.mounts, f.place
}

// noRingTable is the value of a model's ringTable for no table.
const noRingTable = "off"

// tablePlace decides by the host alone whether a ring table can be mounted at a path of
// containers that have these mounts.
func (s *scan) tablePlace(mounts []Mount, at string) TablePlace {
	if at == "" || at == noRingTable {
		return TablePlace{}
	}
	place := TablePlace{Path: path.Clean(at)}
	for _, m := range mounts {
		below, inside := strings.CutPrefix(place.Path, path.Clean(cmp.Or(m.ContainerPath, m.HostPath))+"/")
		if !m.Present || !inside {
			continue
		}
		file := path.Join(m.HostPath, below)
		place.HostPath = file
		info, err := os.Lstat(s.real(file))
		switch {
		case host.IsAbsent(err):
			place.Unfit = "there is no " + file
		case err != nil:
			place.Unfit = err.Error()
		case s.real(file) != path.Join(s.real(m.HostPath), below):
			place.Unfit = file + " is a link"
		case !info.Mode().IsRegular():
			place.Unfit = file + " is no file"
		}
	}
	return place
}
