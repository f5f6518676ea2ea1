package wholefile_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestReplay: a file that could not be read on a recorded machine cannot be read here, and one of another user is not trusted.
func TestReplay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	plant.File(t, name, "text")
	end := wholefile.Replay(func(*unix.Stat_t) error { return unix.EACCES })
	if _, err := wholefile.Read(name, 10); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	end()
	end = wholefile.Replay(func(st *unix.Stat_t) error {
		st.Uid = 4711
		return nil
	})
	_, err := wholefile.ReadTrusted(name, 10)
	if _, is := errors.AsType[*wholefile.UntrustedError](err); !is {
		t.Error(err)
	}
	end()
	if data, err := wholefile.ReadTrusted(name, 10); err != nil || string(data) != "text" {
		t.Error(data, err)
	}
}
