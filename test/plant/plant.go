// Package plant makes file trees for tests.
package plant

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Tree writes files below a fresh directory: "-> target" makes a link, "fifo", "socket" and "dir" what they
// say, anything else a file of that content.
func Tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		File(t, filepath.Join(root, name), files[name])
	}
	return root
}

// File writes one of them.
func File(t testing.TB, name, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	target, isLink := strings.CutPrefix(content, "-> ")
	switch {
	case err != nil:
	case isLink:
		err = os.Symlink(target, name)
	case content == "fifo":
		err = unix.Mkfifo(name, 0o644)
	case content == "socket":
		err = unix.Mknod(name, unix.S_IFSOCK|0o644, 0)
	case content == "dir":
		err = os.Mkdir(name, 0o755)
	default:
		err = os.WriteFile(name, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Rewritten has a test fail unless a file is read, and then written again byte for byte: the release before left it so, and will read
// it again.
func Rewritten[D any](t testing.TB, file interface {
	Parse(data []byte) (D, error)
	Marshal(document D) ([]byte, error)
}, path string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := file.Parse(before)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if after, err := file.Marshal(d); err != nil || !bytes.Equal(after, before) {
		t.Errorf("%s is written again as %s, %v", path, after, err)
	}
}
