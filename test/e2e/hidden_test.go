package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
	"github.com/hyperaccel/lpuctl/test/hostile"
)

// TestANodeThatIsMadeAgain: a node that is hidden in a directory of /dev stays hidden from a command that runs, when root makes it again or
// renames another to it. No user makes it inside, also not a node in /dev itself, which is not hidden and cannot be opened.
func TestANodeThatIsMadeAgain(t *testing.T) {
	need(t, "setpriv", machine.FUSE)
	for profile, c := range map[string]struct {
		nodes string // what their paths begin with
		stays bool   // hidden when it is made again; if not, docs/run.md says so
	}{"orion": {"/dev/dri/renderD", true}, "lpu": {"/dev/lpu", false}} {
		t.Run(profile, func(t *testing.T) {
			root := simulate(t, "--profile", profile, "--lpus", "4", "--numbers", machine.Numbers(t, 4))
			become(t, root)
			run := runOn(t, "/", "--must-include", "lpu0")
			var plan struct{ Hidden []string }
			if err := json.Unmarshal([]byte(machine.Output(t, append(run, "--dry-run", "-o", "json", "--", "true")...)), &plan); err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(plan.Hidden, func(node string) bool { return strings.HasPrefix(node, c.nodes) })
			if at < 0 {
				t.Fatal(plan.Hidden)
			}
			hidden := plan.Hidden[at]
			var st unix.Stat_t
			if err := unix.Stat(hidden, &st); err != nil {
				t.Fatal(err)
			}
			again := "/dev/shm/" + profile // which that user sees
			t.Cleanup(func() { _ = os.Remove(again) })
			script := hostile.Reopens(hidden, unix.Major(st.Rdev), unix.Minor(st.Rdev), again)
			user := []string{"setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"}
			inside := machine.Start(t, slices.Concat(user, run, []string{"--", "sh", "-c", script})...)
			await.Until(t, "it has tried", func() error { return inside.Says("tried\n") })
			if said := inside.Said(10000); strings.Contains(said, "opens") {
				t.Errorf("a user opens it:\n%s", said)
			}
			beside := hidden + ".new"
			for _, step := range []func() error{
				func() error { return os.Remove(hidden) },
				func() error { return machine.MakeNode(hidden, unix.Major(st.Rdev), unix.Minor(st.Rdev)) },
				func() error { return machine.MakeNode(beside, unix.Major(st.Rdev), unix.Minor(st.Rdev)) },
				func() error { return os.Rename(beside, hidden) },
				func() error { return os.Mkdir(again, 0o755) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			await.Until(t, "it has tried again", func() error { return inside.Says("tried again\n") })
			if opens := strings.Contains(inside.Said(10000), "opens"); opens == c.stays {
				t.Errorf("made again, it opens: %v\n%s", opens, inside.Said(10000))
			}
		})
	}
}
