package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestSubordinateUids: a user who may have one LPU has one, with however many uids newuidmap lets that user come.
func TestSubordinateUids(t *testing.T) {
	need(t, "setpriv", "unshare", "newuidmap")
	accounts(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "4")
	for _, above := range []string{filepath.Dir(root), filepath.Dir(filepath.Dir(root))} { // for other users
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	machine.Write(t, filepath.Join(root, "etc/lpuctl/config.yaml"), "leases: {maxLPUs: 1}\n")
	subuid, err := os.ReadFile("/etc/subuid")
	if err != nil {
		t.Fatal(err)
	}
	machine.Write(t, filepath.Join(root, "etc/subuid"), string(subuid))
	machine.ServeLeases(t, root)
	reserve := func(as ...string) machine.Result {
		return machine.Run(t, slices.Concat(as, []string{
			machine.Binary(t), "--root", root, "reserve", "-n", "1", "--for", "1h", "--reason", "a test",
		})...)
	}
	user := []string{"setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"}
	inside := func(uid string) []string {
		return append(slices.Clone(user), "unshare", "--user", "--map-auto", "--setuid", uid, "--setgid", uid)
	}
	if r := reserve(inside("7")...); r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if list := machine.Lpuctl(t, "--root", root, "list"); strings.Count(list, "lpue2e (container)") != 1 {
		t.Error(list)
	}
	for _, as := range [][]string{inside("7"), inside("8"), inside("0"), user} {
		if r := reserve(as...); r.Code != 1 || !strings.Contains(r.Stderr, "a user may have 1 LPUs") {
			t.Errorf("%v: exit code %d: %s%s", as, r.Code, r.Stdout, r.Stderr)
		}
	}
	r := reserve("setpriv", "--reuid", "600000", "--regid", "600000", "--clear-groups")
	if r.Code != 1 || !strings.Contains(r.Stderr, "uid 600000 is of no user of this machine") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}
