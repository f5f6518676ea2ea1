package owner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/plant"
)

func file(t *testing.T) File {
	t.Helper()
	return File{Dir: filepath.Join(t.TempDir(), "lpuctl")}
}

func set(t *testing.T, f File, to Owner) (before Record) {
	t.Helper()
	before, err := f.Set(t.Context(), to, "root(0)", false)
	if err != nil {
		t.Fatal(err)
	}
	return before
}

func write(t *testing.T, f File, text string, mode fs.FileMode) {
	t.Helper()
	_ = os.MkdirAll(f.Dir, 0o755)
	_ = os.Remove(f.Path())
	if err := os.WriteFile(f.Path(), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.Path(), mode); err != nil {
		t.Fatal(err)
	}
}

// record is a file by hand: nothing but what has to be there.
func record(o Owner) string {
	return `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "Owner", "owner": "` + string(o) + `"}`
}

func TestSet(t *testing.T) {
	f := file(t)
	if r, err := f.Read(); err != nil || r.Owner != Plugin || !r.Since.IsZero() {
		t.Errorf("no file: %+v, %v", r, err)
	}
	if before := set(t, f, Plugin); before.Owner != Plugin || !before.Since.IsZero() {
		t.Errorf("before the first: %+v", before)
	}
	set(t, f, DRA)
	first, err := f.Read()
	if err != nil || first.Owner != DRA || first.By != "root(0)" || first.AtStart || time.Since(first.Since) > time.Minute ||
		first.Moment.Boot != host.Now().Boot {
		t.Errorf("%+v, %v", first, err)
	}
	info, err := os.Stat(f.Path())
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	before := set(t, f, DRA)
	if again, err := os.Stat(f.Path()); before != first || err != nil || !os.SameFile(info, again) {
		t.Errorf("the same owner was written once more: %+v, %v", before, err)
	}
}

// TestUnusable: of a file that is not understood, or that others may have written, nobody is the owner, until somebody says who it is.
func TestUnusable(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		mode  fs.FileMode
		wrong string
	}{
		"cut off":            {record(DRA)[:20], 0o644, "unexpected end"},
		"empty":              {"", 0o644, "unexpected end"},
		"a later version":    {strings.Replace(record(DRA), "v1alpha1", "v2", 1), 0o644, `"lpuctl.hyperaccel.ai/v2"`},
		"another owner":      {record("both"), 0o644, `owner "both": expected plugin or dra`},
		"of everybody":       {record(DRA), 0o666, "others may write to it"},
		"larger than it can": {record(DRA) + strings.Repeat(" ", int(File{}.state().Limit)), 0o644, "larger"},
	} {
		t.Run(name, func(t *testing.T) {
			f := file(t)
			write(t, f, c.text, c.mode)
			r, err := f.Read()
			if err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.HasPrefix(err.Error(), f.Path()) || r.Owner != "" {
				t.Errorf("%+v, %v", r, err)
			}
			if before := set(t, f, Plugin); before.Owner != "" {
				t.Errorf("before: %+v", before)
			}
			if r, err := f.Read(); err != nil || r.Owner != Plugin {
				t.Errorf("after it was set: %+v, %v", r, err)
			}
			if kept, err := os.ReadFile(f.state().Aside()); err != nil || string(kept) != c.text {
				t.Errorf("kept: %q, %v", kept, err)
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		f := file(t)
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		write(t, File{Dir: elsewhere}, record(DRA), 0o644)
		_ = os.MkdirAll(f.Dir, 0o755)
		if err := os.Symlink(filepath.Join(elsewhere, "owner.json"), f.Path()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(); err == nil {
			t.Error("it was followed")
		}
		if _, err := f.Set(t.Context(), Plugin, "", false); err == nil {
			t.Error("it was replaced")
		}
	})
}

func TestFileOfTheReleaseBefore(t *testing.T) {
	plant.Rewritten(t, File{}.state(), "testdata/owner.json")
}

// TestUnknownKeys: what a later lpuctl adds does not matter.
func TestUnknownKeys(t *testing.T) {
	f := file(t)
	write(t, f, strings.Replace(record(DRA), "{", `{"later": {"than": 1}, `, 1), 0o644)
	if r, err := f.Read(); err != nil || r.Owner != DRA {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSetWithoutRight is an error that says why, and changes nothing.
func TestSetWithoutRight(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("as root: a file where the directory should be")
		f := File{Dir: filepath.Join(t.TempDir(), "file")}
		if err := os.WriteFile(f.Dir, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Set(t.Context(), DRA, "", false); err == nil {
			t.Error("no error")
		}
		return
	}
	f := file(t)
	set(t, f, Plugin)
	if err := os.Chmod(f.Dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(f.Dir, 0o755) }()
	if _, err := f.Set(t.Context(), DRA, "", false); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if r, err := f.Read(); err != nil || r.Owner != Plugin {
		t.Errorf("%+v, %v", r, err)
	}
}
