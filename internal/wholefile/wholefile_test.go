package wholefile_test

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// TestKeep: a file is replaced if it says something else, or if others may write to it.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "file")
	for what, c := range map[string]struct {
		before string
		mode   os.FileMode
		stays  bool
	}{
		"the same":         {"new", 0o644, true},
		"only I read it":   {"new", 0o600, true},
		"another text":     {"old", 0o644, false},
		"more":             {"new text", 0o644, false},
		"of everybody":     {"new", 0o666, false},
		"nothing is there": {"", 0, false},
	} {
		_ = os.RemoveAll(filepath.Dir(path))
		if c.mode != 0 {
			err := errors.Join(wholefile.MakeDir(filepath.Dir(path)), os.WriteFile(path, []byte(c.before), 0o600), os.Chmod(path, c.mode))
			if err != nil {
				t.Fatal(err)
			}
		}
		before, _ := os.Stat(path)
		if err := wholefile.Keep(path, []byte("new")); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(path)
		if err != nil || os.SameFile(before, after) != c.stays || !c.stays && after.Mode() != 0o644 {
			t.Errorf("%s: %v, %v", what, after, err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
			t.Errorf("%s: it has %q, %v", what, data, err)
		}
	}
}

// TestOverwrite: the file stays the same one, and a disk that is full leaves its old bytes.
func TestOverwrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.json")
	has := func(what, want string) os.FileInfo {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil || string(data) != want {
			t.Errorf("%s: it has %q, %v", what, data, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	old := strings.Repeat("old", 100)
	if err := wholefile.Overwrite(path, []byte(old)); err != nil {
		t.Fatal(err)
	}
	first := has("none before", old)
	if first.Mode() != 0o644 {
		t.Errorf("mode %v", first.Mode())
	}
	for _, text := range []string{"short", strings.Repeat("long", 1000), old} {
		if err := wholefile.Overwrite(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(first, has("in place", text)) {
			t.Error("it is another file")
		}
	}
	err := limited(t, 1000, func() error { return wholefile.Overwrite(path, []byte(strings.Repeat("long", 1000))) })
	if !os.SameFile(first, has("a full disk", old)) || !errors.Is(err, unix.EFBIG) {
		t.Errorf("another file, or %v", err)
	}
	if err := wholefile.Overwrite("/dev/null", []byte("text")); err == nil {
		t.Error("a device is written")
	}
}

// limited does something while no file of this process can have more than some bytes.
func limited(t *testing.T, size uint64, do func() error) error {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ) // which would end the process
	defer signal.Reset(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}()
	return do()
}

// TestReadTrusted: a file is read only if nobody else can have written it, and reading it never waits.
func TestReadTrusted(t *testing.T) {
	write := func(mode os.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Chmod(path, mode))
		}
	}
	for name, test := range map[string]struct {
		put     func(path string) error
		want    string // the reason that it is not trusted; "": it is
		regular bool
	}{
		"ours":                {write(0o644), "", false},
		"the group may write": {write(0o664), "others may write to it (mode 0664)", true},
		"all may write":       {write(0o602), "others may write to it (mode 0602)", true},
		"a FIFO":              {func(path string) error { return unix.Mkfifo(path, 0o600) }, "a FIFO, not a regular file", false},
		"a directory":         {func(path string) error { return os.Mkdir(path, 0o700) }, "a directory, not a regular file", false},
		"a link": {
			func(path string) error { return errors.Join(write(0o600)(path+"2"), os.Symlink(path+"2", path)) }, "a symbolic link", false,
		},
		"a link to nothing": {func(path string) error { return os.Symlink("nothing", path) }, "a symbolic link", false},
		"of another user": {
			func(path string) error { return errors.Join(write(0o600)(path), os.Chown(path, 12345, 0)) },
			"it belongs to user 12345, neither root nor the user lpuctl runs as", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := test.put(path); errors.Is(err, fs.ErrPermission) {
				t.Skip("needs root: only root can give a file to another user")
			} else if err != nil {
				t.Fatal(err)
			}
			data, err := wholefile.ReadTrusted(path, 4)
			why, untrusted := errors.AsType[*wholefile.UntrustedError](err)
			switch {
			case test.want == "" && (err != nil || string(data) != "text"):
				t.Errorf("got %q, %v", data, err)
			case test.want != "" && (!untrusted || data != nil || *why != wholefile.UntrustedError{Why: test.want, Regular: test.regular}):
				t.Errorf("got %q, %v", data, err)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "file")
	if _, err := wholefile.ReadTrusted(path, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := write(0o600)(path); err != nil {
		t.Fatal(err)
	}
	if data, err := wholefile.ReadTrusted(path, 2); !errors.Is(err, wholefile.ErrTooLarge) || string(data) != "tex" {
		t.Errorf("%q, %v", data, err)
	}
}
