package owner

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// TestStanding: who hands out LPUs is known by its lock; of a plugin of a release before by its
// socket only.
func TestStanding(t *testing.T) {
	dir, err := os.MkdirTemp("", "lpu") //nolint:usetesting // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := File{Dir: filepath.Join(dir, "state"), Sockets: filepath.Join(dir, "sockets")}
	stands := func(what string, want Owner, unseen, says string) {
		t.Helper()
		now := f.Stand()
		program, err := now.Program()
		if program != want || !strings.Contains(text(err), unseen) || (unseen == "") != (err == nil) {
			t.Errorf("%s: %q, %v", what, program, err)
		}
		if got := now.Kubernetes(); !strings.Contains(got, says) || says == "" && got != "" {
			t.Errorf("%s: it says %q", what, got)
		}
	}
	stands("nothing", "", "", "")
	set(t, f, DRA)
	stands("a file alone", "", "", "")

	if err := os.Mkdir(f.Sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	before, err := net.Listen("unix", filepath.Join(f.Sockets, "lpuctl-1.sock"))
	if err != nil {
		t.Fatal(err)
	}
	others, err := net.Listen("unix", filepath.Join(f.Sockets, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = others.Close() }()
	stands("a plugin of a release before", Plugin, "", "by the device plugin (lpuctl serve)")
	driver, _ := gate(t, f, DRA)
	enters(t, driver, one, "")
	stands("the driver has handed out an LPU, and is the owner", DRA, "", "by the DRA driver (lpuctl-dra)")
	set(t, f, Plugin)
	stands("both run", Plugin, "", "by the device plugin (lpuctl serve)")
	before.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = before.Close()
	stands("a socket that is left, and who is not the owner now", DRA, "", "by the DRA driver")
	write(t, f, "{", 0o644)
	stands("a file that cannot be used", DRA, "", "by the DRA driver")
	driver.presence.Hide()
	stands("all have ended", "", "", "")

	plugin, _ := gate(t, f, Plugin)
	set(t, f, Plugin)
	enters(t, plugin, one, "")
	plugin.presence.Hide()
	if now := f.Stand(); !now.Lately {
		t.Error("the plugin handed out an LPU a moment ago, and that is not known")
	}
	now := host.Now()
	for what, m := range map[string]host.Moment{
		"a while ago":       {Boot: now.Boot, SinceBoot: now.SinceBoot - KubeletSettle},
		"before the boot":   {Boot: "another", SinceBoot: now.SinceBoot},
		"at no known time":  {},
		"still to come, so": {Boot: now.Boot, SinceBoot: now.SinceBoot + time.Hour},
	} {
		if err := errors.Join(plugin.show(), plugin.presence.Note(noteOf(m))); err != nil {
			t.Fatal(err)
		}
		plugin.presence.Hide()
		if f.Stand().Lately {
			t.Errorf("it was %s, and counts as lately", what)
		}
	}

	lock := filepath.Join(f.Dir, ".owner-dra.lock")
	if err := errors.Join(os.Remove(lock), os.Symlink("elsewhere", lock)); err != nil {
		t.Fatal(err)
	}
	stands("a lock that cannot be seen", "", lock,
		"it cannot be known whether Kubernetes hands out the LPUs of this node: whether the DRA driver")
	if os.Geteuid() != 0 {
		if err := errors.Join(os.Remove(lock), os.Chmod(f.Sockets, 0)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Chmod(f.Sockets, 0o700) }()
		stands("sockets that cannot be seen", "", "permission denied", "it cannot be known")
	}
}
