package lease

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestGroups: the group of a container is the one that has its id in its name, with the number of its directory, whichever versions of
// control groups the node has, and however deep in it a process is.
func TestGroups(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	scope := "/machine.slice/libpod-" + id + ".scope"
	for _, c := range []struct{ name, dir, line string }{
		{"version 2", "sys/fs/cgroup", "0::" + scope + "/container/deep\n"},
		{"both versions", "sys/fs/cgroup/unified", "1:name=systemd:/\n0::" + scope + "\n"},
		{"version 1", "sys/fs/cgroup/cpu,cpuacct", "4:cpu,cpuacct:" + scope + "/container\n1:name=systemd:" + scope + "\n"},
		{"version 1, systemd's own", "sys/fs/cgroup/systemd", "4:cpu,cpuacct:/\n1:name=systemd:" + scope + "\n"},
		{"control groups are not seen", "", "0::" + scope + "\n"},
	} {
		root := plant.Tree(t, map[string]string{"proc/7/cgroup": c.line, "proc/8/cgroup": c.line, "proc/9/cgroup": "0::/\n"})
		want := Group{Path: scope}
		if c.dir != "" {
			dir := filepath.Join(root, c.dir, scope)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Lstat(dir, &st); err != nil {
				t.Fatal(err)
			}
			want.Inode, want.owner = st.Ino, os.Getuid()
		}
		tree, err := host.Root(root).Open()
		if err != nil {
			t.Fatal(err)
		}
		if got := groups(tree, []string{id})[id]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
		tree.Close()
	}
}

// TestRuns: a container runs while a process is in a group that its lease was bound to. A stranger's group with the id of the container
// does not count, nor does one that was made later in the same place.
func TestRuns(t *testing.T) {
	of, stranger := Group{Path: "/a", Inode: 7, owner: 1000}, Group{Path: "/b", Inode: 8, owner: 1001}
	bound := ofUser([]Group{stranger, of}, 1000)
	for name, c := range map[string]struct {
		seen []Group
		want bool
	}{
		"it runs":                    {[]Group{stranger, of}, true},
		"it has ended":               {nil, false},
		"a stranger's group":         {[]Group{stranger}, false},
		"the user's, made later":     {[]Group{{Path: "/a", Inode: 9, owner: 1000}}, false},
		"its number is not seen":     {[]Group{{Path: "/a"}}, true},
		"the user's, somewhere else": {[]Group{{Path: "/c", Inode: 7, owner: 1000}}, false},
	} {
		if got := runs(bound, c.seen); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !runs(nil, []Group{stranger}) || runs(nil, nil) {
		t.Error("a record of before names no groups, and then each with the id counts")
	}
}

// TestGroupsAreBounded: a user who makes thousands of groups with the id of a container does not make the record too long to be read, and
// groups that were removed, of which it is not seen whose they were, are none where another is seen.
func TestGroupsAreBounded(t *testing.T) {
	removed := Group{Path: "/a (deleted)"}
	long := Group{Path: "/" + strings.Repeat("x", 4000), Inode: 5, owner: 1000}
	all := []Group{removed, long}
	for i := range uint64(1000) {
		all = append(all, Group{Path: "/a", Inode: 10 + i, owner: 1000})
	}
	got := ofUser(all, 1000)
	if len(got) != maxGroups || slices.Contains(got, removed) || slices.Contains(got, long) {
		t.Errorf("%d: %+v", len(got), got)
	}
	if got = ofUser([]Group{removed}, 1000); len(got) != 1 {
		t.Errorf("where control groups are not seen: %+v", got)
	}
}

// TestBoundTwice: a lease that cannot be bound again, because that cannot be written down, stays bound as it was.
func TestBoundTwice(t *testing.T) {
	b := bound(t, 7, 7)
	e := b.leases[0]
	container, groups := e.Container, e.Groups
	other := strings.Repeat("b", 64)
	b.Containers[other] = []Group{{Path: "/" + other, Inode: 10}}
	b.Bind(1, other)
	if e.Container != other || e.MayEnd {
		t.Fatalf("%+v", e)
	}
	out, _ := b.Outbox()
	Unwritten(out, errors.New("full"))
	if e.Container != container || !slices.Equal(e.Groups, groups) || !e.MayEnd {
		t.Errorf("%+v", e)
	}
}
