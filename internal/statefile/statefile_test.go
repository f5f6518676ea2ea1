package statefile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// note is the document of these tests.
type note struct {
	Header
	Text string `json:"text"`
}

func noteIn(t *testing.T) File[note] {
	t.Helper()
	return File[note]{
		Path: filepath.Join(t.TempDir(), "state", "note.json"), Kind: "Note", Limit: 200,
		Check: func(n *note) error {
			if n.Text == "" {
				return errors.New("it says nothing")
			}
			return nil
		},
	}
}

// put writes a file as it is.
func put(t *testing.T, f File[note], text string) {
	t.Helper()
	if err := errors.Join(wholefile.MakeDir(filepath.Dir(f.Path)), os.WriteFile(f.Path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); string(text) != want || err != nil {
		t.Errorf("%s is %q, %v; want %q", path, text, err, want)
	}
}

const hello = `{
  "apiVersion": "lpuctl.hyperaccel.ai/v1alpha1",
  "kind": "Note",
  "text": "hello"
}
`

// TestWrite: what is written is read again. Without a file there is no document, and without a path no file.
func TestWrite(t *testing.T) {
	f := noteIn(t)
	if n, err := f.Read(); n != nil || err != nil {
		t.Errorf("no file: %v, %v", n, err)
	}
	if err := f.Write(&note{Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	has(t, f.Path, hello)
	if n, err := f.Read(); err != nil || *n != (note{NewHeader("Note"), "hello"}) {
		t.Errorf("%+v, %v", n, err)
	}
	f.Indent = " "
	if text, err := f.Marshal(&note{Text: "hello"}); string(text) != strings.ReplaceAll(hello, "  ", " ") || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	t.Chdir(t.TempDir())
	f.Path = ""
	n, err := f.Read()
	if n != nil || errors.Join(err, f.Write(&note{})) != nil {
		t.Errorf("no path: %v, %v", n, err)
	}
	if files, err := os.ReadDir("."); len(files) > 0 || err != nil {
		t.Errorf("no path: %v, %v", files, err)
	}
}

// TestUnreadable: the error says whether the content is wrong. It names the file once.
func TestUnreadable(t *testing.T) {
	strict := func(data []byte, document any) error {
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.DisallowUnknownFields()
		return d.Decode(document)
	}
	more := strings.Replace(hello, `"text"`, `"x": 1, "text"`, 1)
	for name, c := range map[string]struct {
		text     string
		mode     fs.FileMode
		change   func(*File[note])
		want     string // "": it can be read
		unusable bool
	}{
		"good":          {hello, 0o644, nil, "", false},
		"another key":   {more, 0o644, nil, "", false},
		"a strict file": {more, 0o644, func(f *File[note]) { f.Decode = strict }, `unknown field "x"`, true},
		"empty":         {"", 0o644, nil, "unexpected end", true},
		"null":          {"null", 0o644, nil, `apiVersion "", kind ""; expected lpuctl.hyperaccel.ai/v1alpha1, Note`, true},
		"another kind":  {strings.Replace(hello, "Note", "Ring", 1), 0o644, nil, `kind "Ring"; expected`, true},
		"newer":         {strings.Replace(hello, "v1alpha1", "v2", 1), 0o644, nil, `apiVersion "lpuctl.hyperaccel.ai/v2"`, true},
		"checked":       {strings.Replace(hello, "hello", "", 1), 0o644, nil, "it says nothing", true},
		"large":         {hello + strings.Repeat(" ", 200), 0o644, nil, "larger than such a file can be (200 bytes)", true},
		"of everybody":  {hello, 0o666, nil, "", false},
		"not trusted":   {hello, 0o666, func(f *File[note]) { f.Trusted = true }, "others may write to it (mode 0666)", true},
		"a directory":   {hello, 0o644, func(f *File[note]) { f.Path = filepath.Dir(f.Path) }, "not a regular file", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := noteIn(t)
			put(t, f, c.text)
			if err := os.Chmod(f.Path, c.mode); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(&f)
			}
			n, err := f.Read()
			e, _ := errors.AsType[*Error](err)
			switch {
			case c.want == "" && (err != nil || n.Text != "hello"):
				t.Errorf("%v, %v", n, err)
			case c.want != "" && (n != nil || e == nil || !strings.HasPrefix(err.Error(), f.Path+": ") || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(e.Err.Error(), f.Path) || e.Unusable != c.unusable):
				t.Errorf("%v, %v", n, err)
			}
		})
	}
	f := noteIn(t)
	put(t, f, hello)
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("note.json", f.Path); err != nil {
		t.Fatal(err)
	}
	_, err := f.Read()
	if e, ok := errors.AsType[*Error](err); !ok || e.Unusable || !errors.Is(err, unix.ELOOP) {
		t.Errorf("a file that cannot be opened: %v", err)
	}
}

// TestChange: it is under the lock, and writes what there is to be written.
func TestChange(t *testing.T) {
	f := noteIn(t)
	change := func(want string, after *note, fault error) error {
		return f.Change(t.Context(), func(before *note, unread error) (*note, error) {
			if text := cmp.Or(before, &note{}).Text; text != want || want != "" && unread != nil {
				t.Errorf("before: %q, not %q, %v", text, want, unread)
			}
			soon, cancel := context.WithTimeout(t.Context(), 0)
			defer cancel()
			if lock, err := filelock.Hold(soon, f.Path); err == nil {
				lock.Close()
				t.Error("others have the lock")
			}
			return after, fault
		})
	}
	if err := change("", &note{Text: "hello"}, nil); err != nil {
		t.Fatal(err)
	}
	has(t, f.Path, hello)
	wrong := errors.New("wrong")
	leftover := filepath.Join(filepath.Dir(f.Path), ".note.json7")
	if err := errors.Join(change("hello", nil, nil), os.WriteFile(leftover, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := change("hello", &note{}, wrong); !errors.Is(err, wrong) {
		t.Errorf("the error of a change: %v", err)
	}
	has(t, f.Path, hello)
	if err := change("hello", &note{Text: "bye"}, nil); err != nil {
		t.Fatal(err)
	}
	has(t, f.Path, strings.Replace(hello, "hello", "bye", 1))
	if files, err := os.ReadDir(filepath.Dir(f.Path)); err != nil || len(files) != 2 {
		t.Errorf("%v, %v; want the file and its lock", files, err)
	}
	for range 2 { // there may be a file that was put aside before
		put(t, f, "{")
		if err := change("", &note{Text: "hello"}, nil); err != nil {
			t.Fatal(err)
		}
		has(t, f.Aside(), "{")
		has(t, f.Path, hello)
	}
}

// TestPutAside: a file is renamed, or has two names until it is replaced. A link is not followed.
func TestPutAside(t *testing.T) {
	f := noteIn(t)
	put(t, f, "{")
	if err := f.linkAside(); err != nil {
		t.Fatal(err)
	}
	has(t, f.Path, "{")
	has(t, f.Aside(), "{")
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	put(t, f, "[")
	why := errors.New("broken")
	if err := f.PutAside(why); !errors.Is(err, why) || err.Error() != "broken; it is put aside as "+f.Aside() {
		t.Error(err)
	}
	err := f.PutAside(why)
	if !errors.Is(err, why) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "cannot be put aside") {
		t.Error(err)
	}
	has(t, f.Aside(), "[")
	if _, err := os.Lstat(f.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Symlink(f.Aside(), f.Path); err != nil {
		t.Fatal(err)
	}
	if err := f.linkAside(); err == nil || !strings.Contains(err.Error(), f.Path) {
		t.Errorf("a link: %v", err)
	}
}
