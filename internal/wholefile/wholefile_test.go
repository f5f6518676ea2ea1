package wholefile_test

import (
	"errors"
	"io/fs"
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
