package wholefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// TestReplaceNamesNoTemporaryFile: an error is about the file that was asked for.
func TestReplaceNamesNoTemporaryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere", "spec.json")
	err := wholefile.Replace(path, nil)
	if want := "write " + path + ": no such file or directory"; err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestReplaceSetsTheMode: a file that only some may read, or that others may write to, is not left so.
func TestReplaceSetsTheMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, before := range []os.FileMode{0, 0o600, 0o666} {
		_ = os.Remove(path) // the first time there is none
		if before != 0 {
			if err := os.WriteFile(path, []byte("old"), before); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, before); err != nil {
				t.Fatal(err)
			}
		}
		if err := wholefile.Replace(path, []byte("new")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("mode %v became %v, %v", before, info.Mode(), err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
			t.Errorf("it has %q, %v", data, err)
		}
	}
}
