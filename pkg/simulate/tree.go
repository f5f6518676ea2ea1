package simulate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tree writes files below a directory. Paths are slash-separated and relative to it; missing directories
// are made. After the first failure it keeps the error and writes nothing more.
type tree struct {
	root string
	made map[string]bool // directories
	err  error
}

func newTree(root string) (*tree, error) {
	entries, err := os.ReadDir(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(root, 0o755)
	case err == nil && len(entries) > 0:
		err = fmt.Errorf("%s: not empty; give a directory that is empty or does not exist yet", root)
	}
	return &tree{root: root, made: map[string]bool{".": true}}, err
}

// do runs one step of writing p, after its directory has been made.
func (t *tree) do(p string, step func(name string) error) {
	t.dir(path.Dir(p))
	if t.err == nil {
		t.err = step(filepath.Join(t.root, p))
	}
}

func (t *tree) dir(p string) {
	if !t.made[p] {
		t.made[p] = true
		t.do(p, func(name string) error { return os.Mkdir(name, 0o755) })
	}
}

// bytes writes a file as it is.
func (t *tree) bytes(p string, data []byte, mode fs.FileMode) {
	t.do(p, func(name string) error { return os.WriteFile(name, data, mode) })
}

// text writes a file of one or more lines. Unlike sysfs it lets its owner write, so that a demo can change a reading.
func (t *tree) text(p, lines string) {
	if lines != "" {
		lines += "\n"
	}
	t.bytes(p, []byte(lines), 0o644)
}

// link makes a symbolic link from one path of the tree to another.
func (t *tree) link(p, target string) {
	t.do(p, func(name string) error { return os.Symlink(linkTarget(p, target), name) })
}

// linkTarget is the text of a link as kernfs writes it: up to the nearest directory that the link shares
// with the parent of its target, then down (fs/kernfs/symlink.c, kernfs_get_target_path).
func linkTarget(link, target string) string {
	up := ""
	for base := path.Dir(link); base != "."; base = path.Dir(base) {
		if strings.HasPrefix(path.Dir(target)+"/", base+"/") {
			return up + target[len(base)+1:]
		}
		up += "../"
	}
	return up + target
}

func (t *tree) fifo(p string) {
	t.do(p, func(name string) error { return pathError("mkfifo", name, unix.Mkfifo(name, 0o644)) })
}

// canMakeNodes tells whether the caller may make device nodes in the tree; it leaves dev behind if so.
func (t *tree) canMakeNodes() bool {
	const dev, probe = "dev", "dev/probe"
	t.dir(dev)
	t.device(probe, Numbers{1, 3})
	if errors.Is(t.err, unix.EPERM) {
		t.err = os.Remove(filepath.Join(t.root, dev))
		return false
	}
	t.do(probe, os.Remove)
	return t.err == nil
}

// device makes a character device that all may open, as udev's rules for accelerators do.
func (t *tree) device(p string, n Numbers) {
	t.do(p, func(name string) error {
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(n.Major, n.Minor))); err != nil {
			return pathError("mknod", name, err)
		}
		return os.Chmod(name, 0o666) // the umask has taken its part of mknod's mode
	})
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
