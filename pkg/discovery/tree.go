package discovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// attributeMax is the most a sysfs attribute can hold, one page (Documentation/filesystems/sysfs.rst).
const attributeMax = 4096

// openTries is how often openat2 is asked before the slower way is taken: it answers EAGAIN where a link climbs
// while anything on the machine is being renamed or mounted (openat2(2), RESOLVE_BENEATH and RESOLVE_IN_ROOT).
const openTries = 32

// tree is a machine's file tree. Every path is looked up as in a chroot: links may be absolute or
// climb, but nothing outside of the root is ever reached.
type tree struct {
	root string
	dir  *os.File
	// noOpenat2 is set in tests, for kernels before 5.6 and for sandboxes that refuse the call.
	noOpenat2 bool
}

func openTree(root string) (*tree, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, dir: dir}, nil
}

// directory is an open directory of the tree. Its files are read relative to it, so the path to it is
// looked up once however many attributes are read.
type directory struct {
	fd   int
	path string // as people know it, root included: for messages
}

func (t *tree) open(p string) (*directory, error) {
	d := &directory{path: filepath.Join(t.root, p)}
	var err error
	d.fd, err = t.openInRoot(p)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	return d, nil
}

func (t *tree) openInRoot(p string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; try < openTries && !t.noOpenat2; try++ {
		fd, err := retry(func() (int, error) {
			return unix.Openat2(int(t.dir.Fd()), strings.TrimPrefix(p, "/"), &how)
		})
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			break
		}
		return fd, err
	}
	resolved, err := securejoin.SecureJoin(t.root, p)
	if err != nil {
		return -1, err
	}
	return retry(func() (int, error) { return unix.Open(resolved, flags|unix.O_NOFOLLOW, 0) })
}

// retry repeats a call that a signal interrupted, as Go's own file functions do.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (d *directory) close() { _ = unix.Close(d.fd) }

func (d *directory) fault(name string, err error) error {
	return &fs.PathError{Op: "read", Path: path.Join(d.path, name), Err: err}
}

// head reads at most limit bytes from the start of a regular file in the directory. It is a plain
// read(2), because some drivers answer EAGAIN, on which Go's own reader would wait for ever.
func (d *directory) head(name string, limit int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, d.fault(name, err)
	}
	if kind := fileKind(st.Mode); kind != "" {
		return nil, d.fault(name, fmt.Errorf("%s, not a regular file", kind))
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, d.fault(name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Nearly all attributes are short: a small buffer first.
	buffer := make([]byte, min(limit, 128))
	for n := 0; ; buffer = append(buffer, make([]byte, limit-len(buffer))...) {
		more, err := retry(func() (int, error) { return unix.Read(fd, buffer[n:]) })
		n += max(more, 0)
		if err != nil {
			return nil, d.fault(name, err)
		}
		if n < len(buffer) || n == limit {
			return buffer[:n], nil
		}
	}
}

// fileKind names what is not a regular file, in the words of ls.
func fileKind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return ""
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	default:
		return "a device"
	}
}

// text reads an attribute and trims the newline that sysfs ends it with. What no attribute can be, too
// long or not text, is an error, so that junk never reaches an inventory.
func (d *directory) text(name string) (string, error) {
	data, err := d.head(name, attributeMax+1)
	if err != nil {
		return "", err
	}
	if len(data) > attributeMax {
		return "", d.fault(name, fmt.Errorf("longer than a sysfs attribute can be (%d bytes)", attributeMax))
	}
	text := strings.TrimSpace(string(data))
	if i := strings.IndexFunc(text, notText); i >= 0 {
		return "", d.fault(name, fmt.Errorf("not text (%q at byte %d)", text[i:i+1], i))
	}
	return text, nil
}

// line is text of one line, as all attributes are but uevent and a few tables.
func (d *directory) line(name string) (string, error) {
	text, err := d.text(name)
	if err == nil && strings.ContainsAny(text, "\n\t") {
		return "", d.fault(name, errors.New("more than one line"))
	}
	return text, err
}

func notText(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r > '~') }

// link returns the target of a symbolic link in the directory, as it is written.
func (d *directory) link(name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := retry(func() (int, error) { return unix.Readlinkat(d.fd, name, buffer) })
	if err != nil {
		return "", d.fault(name, err)
	}
	return string(buffer[:n]), nil
}

// linkName is the last element of a link's target: how sysfs says driver, subsystem and group
// (Documentation/admin-guide/sysfs-rules.rst).
func (d *directory) linkName(name string) (string, error) {
	target, err := d.link(name)
	if err != nil {
		return "", err
	}
	last := path.Base(target)
	if !isPlainName(last) {
		return "", d.fault(name, fmt.Errorf("%.40q is not a name", last))
	}
	return last, nil
}

// names lists the directory, in no order.
func (d *directory) names() ([]string, error) {
	if _, err := unix.Seek(d.fd, 0, io.SeekStart); err != nil {
		return nil, d.fault("", err)
	}
	var names []string
	for buffer := make([]byte, 8<<10); ; {
		n, err := retry(func() (int, error) { return unix.ReadDirent(d.fd, buffer) })
		if err != nil {
			return nil, d.fault("", err)
		}
		if n <= 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
	}
}

// isAbsent tells a file that is not there from one that cannot be read.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// follow returns where the link dir/name leads, as a path below the root; dir is the path of d below the root. The kernel's
// links in sysfs are relative and name no further link (fs/sysfs/symlink.c), so their text is enough.
func (d *directory) follow(dir, name string) (string, error) {
	target, err := d.link(name)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(target) {
		target = path.Join("/", dir, target)
	}
	return path.Clean(target), nil
}

// lstat looks at a file without opening it; links on the way to it are followed within the root.
func (t *tree) lstat(p string) (unix.Stat_t, error) {
	var st unix.Stat_t
	d, err := t.open(path.Dir(path.Join("/", p)))
	if err != nil {
		return st, err
	}
	defer d.close()
	err = unix.Fstatat(d.fd, path.Base(p), &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// exists tells whether the path leads to something in the tree.
func (t *tree) exists(p string) bool {
	resolved, err := securejoin.SecureJoin(t.root, p)
	if err != nil {
		return false
	}
	_, err = os.Lstat(resolved)
	return err == nil
}
