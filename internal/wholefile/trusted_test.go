package wholefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestCheckProgram: no user but root and this one can put another program in its place.
func TestCheckProgram(t *testing.T) {
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	program := filepath.Join(below, "program")
	link := func() error { return errors.Join(os.Remove(program), os.Symlink("/bin/true", program)) }
	linked := func() error { return errors.Join(os.Rename(below, dir+"/x"), os.Symlink("x", below)) }
	plant.File(t, program, "")
	for name, c := range map[string]struct {
		change func() error
		want   string // in the error; "": none
	}{
		"not executable":            {func() error { return os.Chmod(program, 0o600) }, program + ": it is not executable"},
		"in order":                  {func() error { return nil }, ""},
		"its group may write":       {func() error { return os.Chmod(program, 0o770) }, program + ": others may write to it"},
		"all may write beside it":   {func() error { return os.Chmod(below, 0o777) }, below + ": others may write to it"},
		"a link":                    {link, "a symbolic link"},
		"a directory":               {func() error { return errors.Join(os.Remove(program), os.Mkdir(program, 0o700)) }, "a directory"},
		"it is not there":           {func() error { return os.Remove(program) }, "no such file"},
		"its directory is a link":   {linked, below + ": a symbolic link"},
		"a directory is not to see": {func() error { return os.RemoveAll(below) }, "no such file"},
	} {
		if err := os.RemoveAll(below); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(dir + "/x")
		plant.File(t, program, "")
		err := errors.Join(os.Chmod(below, 0o755), os.Chmod(program, 0o700)) //nolint:gosec // it is to be executed
		if err := errors.Join(err, c.change()); err != nil {
			t.Fatal(err)
		}
		err = wholefile.CheckProgram(program)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
