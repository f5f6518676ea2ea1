package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIdentity: it stays when a file is written in place, and changes when another one takes its place.
func TestIdentity(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if got := Identity(name); got != "" {
		t.Errorf("none is %q", got)
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(name)
	first := Identity(name)
	write(name)
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if again := Identity(name); first == "" || again != first {
		t.Errorf("in place: %q, before %q", again, first)
	}
	write(name + ".new")
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	if second := Identity(name); second == "" || second == first {
		t.Errorf("another file: %q, before %q", second, first)
	}
}
