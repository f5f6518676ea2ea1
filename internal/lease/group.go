package lease

import (
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Group is a control group of a container (cgroups(7)): one whose name has the id of the
// container.
type Group struct {
	Path string `json:"path"` // as in /proc/PID/cgroup
	// Inode is that of its directory in /sys/fs/cgroup. A group that is made later in the
	// same place has another one. 0: not known.
	Inode uint64 `json:"inode,omitempty"`

	owner int // uid of the directory's owner; 0 if that is not known
}

// groups are the control groups that processes are in, by the ids of the containers that
// are looked for. The groups below the one that has the id count as that one.
func groups(t *host.Tree, containers []string) map[string][]Group {
	found := map[string][]Group{}
	names, _ := t.Names("proc")
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		process, err := t.Dir("proc/" + name)
		if err != nil {
			continue // it has ended
		}
		text, _ := process.Text("cgroup")
		process.Close()
		for _, id := range containers {
			if !strings.Contains(text, id) {
				continue
			}
			if g := groupOf(t, text, id); !g.isConmons(id) && !slices.Contains(found[id], g) {
				found[id] = append(found[id], g)
			}
		}
	}
	return found
}

// isConmons reports whether a group is that of conmon, which is not the container: it sees
// to what is left of it.
func (g Group) isConmons(container string) bool { return strings.Contains(g.Path, "conmon-"+container) }

// groupOf returns the group of a container that has an id, as the first line of
// /proc/PID/cgroup that has the id says: HIERARCHY:CONTROLLERS:PATH.
func groupOf(t *host.Tree, text, id string) Group {
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, name, _ := strings.Cut(rest, ":")
		before, after, has := strings.Cut(name, id)
		if !has {
			continue
		}
		below, _, _ := strings.Cut(after, "/")
		g := Group{Path: before + id + below}
		if controllers = strings.TrimPrefix(controllers, "name="); controllers == "" {
			controllers = "unified" // where both versions are in use
		}
		for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/" + controllers} {
			if st, err := t.Lstat(path.Join(mount, g.Path)); err == nil {
				g.Inode, g.owner = st.Ino, int(st.Uid)
				break
			}
		}
		return g
	}
	return Group{}
}

// What is written down of a container is bounded: its user may have made thousands of
// groups. Those of a container have about 200 bytes, and are one or two.
const (
	maxGroups = 8
	maxPath   = 1 << 10 // bytes
)

// ofUser returns those of some groups that a user's container can be in. A group that
// another user has made is none of them, whatever its name, nor is one whose
// directory is not seen, such as one that was removed, if that of another is.
func ofUser(all []Group, uid int) []Group {
	of := slices.DeleteFunc(slices.Clone(all), func(g Group) bool { return g.owner != 0 && g.owner != uid || len(g.Path) > maxPath })
	if slices.ContainsFunc(of, func(g Group) bool { return g.Inode != 0 }) {
		of = slices.DeleteFunc(of, func(g Group) bool { return g.Inode == 0 })
	}
	return of[:min(len(of), maxGroups)]
}

// runs reports whether a process is in one of the groups that were bound. A record of a
// lease that has none counts each group with the id.
func runs(bound, seen []Group) bool {
	if len(bound) == 0 {
		return len(seen) > 0
	}
	return slices.ContainsFunc(seen, func(s Group) bool {
		return slices.ContainsFunc(bound, func(b Group) bool {
			return b.Path == s.Path && (b.Inode == s.Inode || b.Inode == 0 || s.Inode == 0)
		})
	})
}
