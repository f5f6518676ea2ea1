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
	root  string
	made  map[string]bool // directories
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
	t.do(p, func(name string) error { return os.WriteFile(name, data, mode) })
}

// text writes a file of one or more lines. In sysfs most files are read-only; here their owner may write them, so
// that a demo can change what a sensor reads.
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

// linkTarget is the text of a link as kernfs writes it: up to the nearest directory that contains both the link and the
// parent of its target, then down (fs/kernfs/symlink.c, kernfs_get_target_path).
func linkTarget(link, target string) string {
	up, _ := filepath.Rel(path.Dir(link), path.Dir(target)) // fails only if one of the two is absolute
	return path.Join(up, path.Base(target))
}

// links makes a link in dir to a directory that dir belongs to, such as its subsystem or driver, and a link back.
func (t *tree) links(dir, name, owner, back string) {
	t.link(dir+"/"+name, owner)
	t.link(owner+"/"+back, dir)
}

// busDevice writes what the devices of all buses have. A device without a driver has driver "".
func (t *tree) busDevice(dir, bus, driver, uevent string) {
	bus, name := "sys/bus/"+bus, path.Base(dir)
	t.links(dir, "subsystem", bus, "devices/"+name)
	if driver != "" {
		t.links(dir, "driver", bus+"/drivers/"+driver, name)
		uevent = "DRIVER=" + driver + "\n" + uevent
	}
	t.text(dir+"/uevent", strings.TrimSuffix(uevent, "\n"))
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

// special makes a file that is neither a regular file nor a directory. mode is that of mknod(2).
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
