package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// AttributeMax is how many bytes a sysfs attribute can hold, one page
// (Documentation/filesystems/sysfs.rst).
const AttributeMax = 4096

// openTries is how often openat2 is tried before the slower fallback. It fails with
// EAGAIN if a link contains ".." and any file of the machine is renamed or mounted
// meanwhile (openat2(2), RESOLVE_BENEATH and RESOLVE_IN_ROOT).
const openTries = 32

// Tree is an open root, for many reads.
type Tree struct {
	Root
	// NoOpenat2 uses the fallback at once. Tests set it: kernels before 5.6 and some
	// sandboxes have no openat2.
	NoOpenat2 bool

	dir *os.File
	// shortage is the first that a read had, also of those through another function.
	shortage *atomic.Pointer[error]
	through  ReadThrough
}

// ReadThrough reads at most limit bytes from the start of a file, which is known to be a
// regular one.
type ReadThrough func(d *Dir, name string, limit int) ([]byte, error)

// Through returns the same tree, whose files are read by another function. It is open as
// long as t is.
func (t *Tree) Through(read ReadThrough) *Tree {
	return &Tree{Root: t.Root, NoOpenat2: t.NoOpenat2, dir: t.dir, shortage: t.shortage, through: read}
}

// Open opens the root. The error is that of open(2).
func (r Root) Open() (*Tree, error) {
	dir, err := os.OpenFile(string(r), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Tree{Root: r, dir: dir, shortage: new(atomic.Pointer[error])}, nil
}

// Note remembers an error if it [IsShortage], and returns it. The tree notes the errors
// of its own reads and of those of its directories.
func (t *Tree) Note(err error) error {
	if IsShortage(err) {
		t.shortage.CompareAndSwap(nil, &err)
	}
	return err
}

// Shortage returns the first error of a read that [IsShortage]; nil if there was none.
// With one, what was read is not what is there.
func (t *Tree) Shortage() error {
	if err := t.shortage.Load(); err != nil {
		return *err
	}
	return nil
}

// Close releases the root. A read that still hangs in the kernel keeps it until that read
// returns.
func (t *Tree) Close() { _ = t.dir.Close() }

// Dir is an open directory of the tree. Its files are read relative to it, so the path to
// it is looked up once however many attributes are read.
type Dir struct {
	Path string // with the root, for messages

	fd   int
	tree *Tree
}

// Dir opens a directory. The error is an *fs.PathError.
func (t *Tree) Dir(p string) (*Dir, error) {
	shown := t.Shown(p)
	t.looked(p)
	fd, err := t.openInRoot(p)
	if err != nil {
		return nil, t.Note(&fs.PathError{Op: "open", Path: shown, Err: err})
	}
	return &Dir{shown, fd, t}, nil
}

func (t *Tree) openInRoot(p string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; try < openTries && !t.NoOpenat2; try++ {
		fd, err := retry(func() (int, error) {
			return t.openat2(strings.TrimPrefix(p, "/"), &how)
		})
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			break
		}
		return fd, err
	}
	resolved, err := t.Resolve(p)
	if err != nil {
		return -1, err
	}
	return retry(func() (int, error) { return unix.Open(resolved, flags|unix.O_NOFOLLOW, 0) })
}

// openat2 calls openat2(2). SyscallConn keeps the descriptor of the root open during the
// call, so that it cannot become the descriptor of another file.
func (t *Tree) openat2(p string, how *unix.OpenHow) (fd int, err error) {
	raw, _ := t.dir.SyscallConn() // fails only without a file
	if closed := raw.Control(func(root uintptr) { fd, err = unix.Openat2(int(root), p, how) }); closed != nil {
		return -1, closed
	}
	return fd, err
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

// Inode is the inode number of the directory; 0 if it cannot be read. In sysfs each
// device has another one, also at the same address.
func (d *Dir) Inode() uint64 {
	var st unix.Stat_t
	_ = unix.Fstat(d.fd, &st)
	return st.Ino
}

// Close releases the directory.
func (d *Dir) Close() { _ = unix.Close(d.fd) }

// Fault returns an error about a file of the directory, an *fs.PathError.
func (d *Dir) Fault(name string, err error) error {
	return d.tree.Note(&fs.PathError{Op: "read", Path: path.Join(d.Path, name), Err: err})
}

// Dup returns another descriptor of the directory, which the caller closes.
func (d *Dir) Dup() (fd int, err error) { return unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0) }

// Head reads at most limit bytes from the start of a regular file in the directory. It is
// a plain read(2), because some drivers answer EAGAIN, on which Go's own reader would
// wait for ever.
func (d *Dir) Head(name string, limit int) ([]byte, error) {
	data, err := d.head(name, limit)
	d.wasRead(name, data, err)
	return data, err
}

func (d *Dir) head(name string, limit int) ([]byte, error) {
	if d.tree.through != nil {
		if err := d.check(name); err != nil {
			return nil, d.Fault(name, err)
		}
		data, err := d.tree.through(d, name, limit)
		if err != nil {
			err = d.Fault(name, err)
		}
		return data, err
	}
	fd, err := d.open(name)
	if err != nil {
		return nil, d.Fault(name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Nearly all attributes are short: a small buffer first.
	buffer := make([]byte, min(limit, 128))
	for n := 0; ; buffer = append(buffer, make([]byte, min(limit, 4*len(buffer))-len(buffer))...) {
		more, err := retry(func() (int, error) { return unix.Read(fd, buffer[n:]) })
		n += max(more, 0)
		if err != nil {
			return nil, d.Fault(name, err)
		}
		if n < len(buffer) || n == limit {
			return buffer[:n], nil
		}
	}
}

// open opens a regular file of the directory. Another kind of file is not opened, because
// that can hang or do harm.
func (d *Dir) open(name string) (fd int, err error) {
	if err := d.check(name); err != nil {
		return -1, err
	}
	return d.openHere(name)
}

// openHere opens a file of the directory, whatever it is.
func (d *Dir) openHere(name string) (fd int, err error) {
	return retry(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
}

// check returns an error unless a file of the directory is a regular one.
func (d *Dir) check(name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	err := original(&st)
	if kind := wholefile.Kind(st.Mode); kind != "" {
		return fmt.Errorf("%s, not a regular file", kind)
	}
	return err
}

// Text reads an attribute and trims the newline at its end. If it is too long for an
// attribute of sysfs or is not text, that is an error, so that no binary data gets into
// an inventory.
func (d *Dir) Text(name string) (string, error) {
	data, err := d.Head(name, AttributeMax+1)
	if err != nil {
		return "", err
	}
	if len(data) > AttributeMax {
		return "", d.Fault(name, fmt.Errorf("longer than a sysfs attribute can be (%d bytes)", AttributeMax))
	}
	text := strings.TrimSpace(string(data))
	if i := strings.IndexFunc(text, NotText); i >= 0 {
		return "", d.Fault(name, fmt.Errorf("not text (%q at byte %d)", text[i:i+1], i))
	}
	return text, nil
}

// Line reads an attribute of one line as Text does. Most attributes have one line; uevent
// has more.
func (d *Dir) Line(name string) (string, error) {
	text, err := d.Text(name)
	if err == nil && strings.ContainsAny(text, "\n\t") {
		return "", d.Fault(name, errors.New("more than one line"))
	}
	return text, err
}

// Line reads one attribute by its path; see [Dir.Line].
func (t *Tree) Line(p string) (string, error) { return t.in(p, (*Dir).Line) }

// in reads something by its name in its directory.
func (t *Tree) in(p string, read func(d *Dir, name string) (string, error)) (string, error) {
	d, err := t.Dir(path.Dir(p))
	if err != nil {
		return "", err
	}
	defer d.Close()
	return read(d, path.Base(p))
}

// NotText reports whether a character cannot be part of a sysfs attribute: all but
// printable ASCII, newline and tab.
func NotText(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r > '~') }

// Link returns the text of a link in the directory.
func (d *Dir) Link(name string) (string, error) {
	d.looked(name)
	buffer := make([]byte, unix.PathMax)
	n, err := retry(func() (int, error) { return unix.Readlinkat(d.fd, name, buffer) })
	if err != nil {
		return "", d.Fault(name, err)
	}
	d.linked(name, string(buffer[:n]))
	return string(buffer[:n]), nil
}

// LinkName returns the last element of the target of a link. So sysfs names driver,
// subsystem and IOMMU group (Documentation/admin-guide/sysfs-rules.rst).
func (d *Dir) LinkName(name string) (string, error) {
	target, err := d.Link(name)
	if err != nil {
		return "", err
	}
	last := path.Base(target)
	if !IsPlainName(last) {
		return "", d.Fault(name, fmt.Errorf("%.40q is not a name", last))
	}
	return last, nil
}

// ProcessRoot opens the root directory of the process whose directory in /proc this is.
// Only there it may be outside of the tree: elsewhere a link is not followed.
func (d *Dir) ProcessRoot() (*Tree, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if !d.IsProc() {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := retry(func() (int, error) { return unix.Openat(d.fd, "root", flags, 0) })
	if err != nil {
		return nil, d.Fault("root", err)
	}
	shown := path.Join(d.Path, "root")
	return &Tree{Root: Root(shown), NoOpenat2: d.tree.NoOpenat2, dir: os.NewFile(uintptr(fd), shown), shortage: d.tree.shortage}, nil
}

// IsProc reports whether the directory is the kernel's own /proc, or in it.
func (d *Dir) IsProc() bool {
	var system unix.Statfs_t
	return unix.Fstatfs(d.fd, &system) == nil && system.Type == unix.PROC_SUPER_MAGIC
}

// Device returns the number of the character device to which a link of the kernel's
// /proc leads, as in st_rdev of stat(2); 0 if it is another file. The caller knows that
// the directory [Dir.IsProc]. The error is that of statx(2).
func (d *Dir) Device(name string) (number uint64, err error) {
	var st unix.Statx_t
	_, err = retry(func() (int, error) {
		return 0, unix.Statx(d.fd, name, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	})
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, err
	}
	return unix.Mkdev(st.Rdev_major, st.Rdev_minor), nil
}

// Names lists the directory in no order. It can be called once.
func (d *Dir) Names() ([]string, error) {
	d.listed()
	var names []string
	for buffer := make([]byte, 8<<10); ; {
		n, err := retry(func() (int, error) { return unix.ReadDirent(d.fd, buffer) })
		if err != nil {
			return nil, d.Fault("", err)
		}
		if n <= 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
	}
}

// Follow returns where a link leads, as a path below the root. The kernel's links in
// sysfs are relative and name no further link (fs/sysfs/symlink.c), so their text is
// enough.
func (t *Tree) Follow(link string) (string, error) {
	return t.in(link, func(d *Dir, name string) (string, error) { return d.follow(path.Dir(link), name) })
}

// Links returns where each link of a directory leads, as Follow does, by the name of the
// link.
func (t *Tree) Links(dir string) (map[string]string, error) {
	d, err := t.Dir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Names()
	targets := map[string]string{}
	for _, name := range names {
		if target, err := d.follow(dir, name); err == nil { // else it is no link, or is gone
			targets[name] = target
		}
	}
	return targets, err
}

func (d *Dir) follow(dir, name string) (string, error) {
	target, err := d.Link(name)
	if !path.IsAbs(target) {
		target = path.Join("/", dir, target)
	}
	return path.Clean(target), err
}

// Names lists a directory, in no order.
func (t *Tree) Names(dir string) ([]string, error) {
	d, err := t.Dir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Names()
}

// State is [State] of a path of the root.
func (t *Tree) State(p string) string {
	real, err := t.Resolve(p)
	if err != nil {
		return err.Error()
	}
	return State(real)
}

// Lstat returns the status of a file without opening it. Links in the path to it are
// followed within the root.
func (t *Tree) Lstat(p string) (unix.Stat_t, error) {
	d, err := t.Dir(path.Dir(path.Join("/", p)))
	if err != nil {
		return unix.Stat_t{}, err
	}
	defer d.Close()
	return d.Lstat(path.Base(p))
}

// Lstat returns the status of a file of the directory without opening it.
func (d *Dir) Lstat(name string) (st unix.Stat_t, err error) {
	d.looked(name)
	if err = unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		_ = original(&st)
	}
	return st, d.tree.Note(err)
}

// IsPlainName reports whether a name can be one element of a path in sysfs or /dev:
// printable ASCII without space and slash.
func IsPlainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/'
	})
}
