package simulate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tree writes files below a directory. Paths are slash-separated and relative to it;
// missing directories are made. After the first failure it keeps the error and writes
// nothing more.
type tree struct {
	root  string
	made  map[string]bool // directories
	live  bool            // programs may read the tree: a file is there whole or not at all
	nodes bool            // the caller may make device nodes, so that the tree has a dev
	err   error
}

func newTree(root string) (*tree, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if len(entries) > 0 {
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
	t.do(p, func(name string) error {
		if !t.live {
			return os.WriteFile(name, data, mode)
		}
		aside := t.aside()
		if err := os.WriteFile(aside, data, mode); err != nil {
			return err
		}
		if err := os.Rename(aside, name); !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.EISDIR) {
			return err
		}
		return exchange(aside, name)
	})
}

// aside is where something is made that takes its place when it is whole.
func (t *tree) aside() string { return filepath.Join(t.root, ".simulate") }

// hide puts an empty directory in the place of a file, so that no user can read it, not
// even root.
func (t *tree) hide(p string) {
	t.do(p, func(name string) error {
		if err := os.Mkdir(t.aside(), 0o755); err != nil {
			return err
		}
		return exchange(t.aside(), name)
	})
}

// exchange puts what is made in the place of what is there, which it removes.
func exchange(aside, name string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: aside, New: name, Err: err}
	}
	return os.Remove(aside)
}

// remove removes files, and directories with all that is in them.
func (t *tree) remove(paths ...string) {
	for _, p := range paths {
		if t.err == nil {
			t.err = os.RemoveAll(filepath.Join(t.root, p))
		}
		maps.DeleteFunc(t.made, func(dir string, _ bool) bool { return dir == p || strings.HasPrefix(dir, p+"/") })
	}
}

// text writes a file of one or more lines. In sysfs most files are read-only; here their
// owner may write them, so that a demo can change what a sensor reads.
func (t *tree) text(p, lines string) {
	if lines != "" {
		lines += "\n"
	}
	t.bytes(p, []byte(lines), 0o644)
}

// attributes writes a file in dir for each line NAME=TEXT.
func (t *tree) attributes(dir, lines string) {
	for line := range strings.Lines(lines) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		t.text(dir+"/"+name, text)
	}
}

// link makes a symbolic link from one path of the tree to another.
func (t *tree) link(p, target string) {
	t.do(p, func(name string) error { return os.Symlink(linkTarget(p, target), name) })
}

// linkTarget is the text of a link as kernfs writes it: up to the nearest directory that
// contains both the link and the parent of its target, then down (fs/kernfs/symlink.c,
// kernfs_get_target_path).
func linkTarget(link, target string) string {
	up, _ := filepath.Rel(path.Dir(link), path.Dir(target)) // fails only if one of the two is absolute
	return path.Join(up, path.Base(target))
}

// links makes a link in dir to a directory that dir belongs to, such as its subsystem or
// driver, and a link back.
func (t *tree) links(dir, name, owner, back string) {
	t.link(dir+"/"+name, owner)
	t.link(owner+"/"+back, dir)
}

// busDevice writes what the devices of all buses have. A device without a driver has
// driver "".
func (t *tree) busDevice(dir, bus, driver, uevent string) {
	bus, name := "sys/bus/"+bus, path.Base(dir)
	t.links(dir, "subsystem", bus, "devices/"+name)
	t.text(dir+"/uevent", ueventOf(driver, uevent))
	if driver != "" {
		t.links(dir, "driver", bus+"/drivers/"+driver, name)
	}
}

// ueventOf is the uevent of a device with what the core says of its driver.
func ueventOf(driver, uevent string) string {
	if driver != "" {
		uevent = "DRIVER=" + driver + "\n" + uevent
	}
	return strings.TrimSuffix(uevent, "\n")
}

// classDevice writes what the devices of all classes have.
func (t *tree) classDevice(parent, class, name, uevent string) {
	dir := path.Join(parent, class, name)
	t.links(dir, "subsystem", "sys/class/"+class, name)
	t.link(dir+"/device", parent)
	t.text(dir+"/uevent", uevent)
}

func (t *tree) fifo(p string) { t.special(p, unix.S_IFIFO|0o644, Numbers{}) }

// device makes a character device that all may open, as udev's rules for accelerators do.
func (t *tree) device(p string, n Numbers) {
	if t.nodes {
		t.special(p, unix.S_IFCHR|0o666, n)
	}
}

// special makes a file that is neither a regular file nor a directory. mode is that of
// mknod(2).
func (t *tree) special(p string, mode uint32, n Numbers) {
	t.do(p, func(name string) error {
		if err := unix.Mknod(name, mode, int(unix.Mkdev(n.Major, n.Minor))); err != nil {
			return &fs.PathError{Op: "mknod", Path: name, Err: err}
		}
		return os.Chmod(name, fs.FileMode(mode).Perm()) // mknod takes away what the umask says
	})
}

// dev makes the directory of the device nodes, unless the caller may not make such nodes.
func (t *tree) dev() {
	t.nodes = true
	t.device("dev", Numbers{1, 3})
	if errors.Is(t.err, unix.EPERM) {
		t.nodes, t.err = false, nil
		return
	}
	t.do("dev", os.Remove)
	t.dir("dev")
}
