package lease_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestAShortageEndsNoContainer: where the processes cannot be read for want of descriptors, no container is taken for ended.
func TestAShortageEndsNoContainer(t *testing.T) {
	const id = "0123456789abcdef"
	root := host.Root(plant.Tree(t, map[string]string{"proc/7/cgroup": "0::/libpod-" + id + ".scope\n"}))
	looker := lease.Looker{Root: root, People: person.In(root, "lpu")}
	for left := 0; ; left++ {
		restore := plant.LeaveDescriptors(t, left)
		view, err := looker.Look(t.Context(), &discovery.Inventory{}, lease.Seek{Containers: []string{id}})
		restore()
		if err == nil {
			if len(view.Containers[id]) == 0 {
				t.Errorf("with %d descriptors the container has ended", left)
			}
			return
		}
		if !host.IsShortage(err) {
			t.Fatal(err)
		}
	}
}

// TestAHangingResolverDelaysNoLook: it is asked for a second at most, whatever there is to ask. A process of which it is not known whose it
// is keeps back what it may have, and one of a known user does not.
func TestAHangingResolverDelaysNoLook(t *testing.T) {
	const owners = 20
	files, ranges := map[string]string{"etc/passwd": "anna:x:1000:1000::/:/bin/sh\n"}, "anna:100000:65536\n"
	process := func(pid, uid int) {
		files[fmt.Sprintf("proc/%d/status", pid)] = fmt.Sprintf("Uid:\t%d\t%[1]d\n", uid)
		files[fmt.Sprintf("proc/%d/task/%[1]d/fd/3", pid)] = "-> socket:[5]"
		files[fmt.Sprintf("proc/%d/task/%[1]d/fdinfo/3", pid)] = "scm_fds: 1\n"
	}
	for n := 1; n <= owners; n++ {
		ranges += fmt.Sprintf("of-ldap-%d:%d:65536\n", n, 1_000_000*n)
		process(n, 1_000_000*n)
	}
	process(owners+1, 100_001)
	files["etc/subuid"] = ranges
	root, bin := host.Root(plant.Tree(t, files)), t.TempDir()
	script := "#!/bin/sh\necho asked >>" + bin + "/asked\nexec sleep 30\n"
	if err := os.WriteFile(filepath.Join(bin, "getent"), []byte(script), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	looker := lease.Looker{Root: root, People: person.In(root, "lpu")}
	view, err := looker.Look(t.Context(), &discovery.Inventory{}, lease.Seek{Users: map[int]bool{4242: true}})
	if err != nil || len(view.Unclear) != owners {
		t.Errorf("%d, %v", len(view.Unclear), err)
	}
	asked, _ := os.ReadFile(filepath.Join(bin, "asked"))
	if n := strings.Count(string(asked), "asked"); n >= owners {
		t.Errorf("%d programs were waited for", n)
	}
}
