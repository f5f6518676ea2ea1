package filelock

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// present wants somebody, or nobody, to be present.
func present(t *testing.T, path string, want bool) {
	t.Helper()
	if got, err := Present(path); err != nil || got != want {
		t.Errorf("present: %t, %v; want %t", got, err, want)
	}
}

func show(t *testing.T, p *Presence) {
	t.Helper()
	if err := p.Show(); err != nil {
		t.Fatal(err)
	}
}

func TestPresence(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path, name := filepath.Join(dir, "serve"), filepath.Join(dir, ".serve.lock")
	one, two := &Presence{Path: path}, &Presence{Path: path}
	present(t, path, false)
	show(t, one)
	show(t, two) // two may be there at the same time
	present(t, path, true)
	one.Hide()
	present(t, path, true)
	two.Hide()
	present(t, path, false)

	show(t, one)
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can open the file: %v, %v", info, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	present(t, path, false)
	show(t, one)
	present(t, path, true)
	one.Hide()

	// Somebody else's lock of a file that he could open counts no more when serve has come.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(foreign.Fd(), unix.F_OFD_SETLK, whole(unix.F_WRLCK)); err != nil {
		t.Fatal(err)
	}
	show(t, one)
	present(t, path, true)
	one.Hide()
	present(t, path, false)
}

// TestPresenceCannotBeTold: what is in the place of the file is no file that can be locked.
func TestPresenceCannotBeTold(t *testing.T) {
	dir := t.TempDir()
	path, name := filepath.Join(dir, "serve"), filepath.Join(dir, ".serve.lock")
	if err := os.Symlink("elsewhere", name); err != nil {
		t.Fatal(err)
	}
	if _, err := Present(path); err == nil {
		t.Error("a link was followed")
	}
	p := &Presence{Path: path}
	if err := p.Show(); err == nil {
		t.Error("the file of a link was made")
	}
	if _, err := os.Stat(filepath.Join(dir, "elsewhere")); err == nil {
		t.Error("there is a file elsewhere")
	}
}
