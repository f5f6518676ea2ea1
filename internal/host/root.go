// Package host reads the files of a machine below a root. The root need not be "/": it
// can be a simulated node, or the root of the host in a container. A path is looked up as
// in a chroot: links may be absolute or contain "..", but nothing outside of the root is
// ever read. No read waits for a FIFO or a device, and each has a limit.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// Root is the directory that has the files of a machine, as the user typed it.
type Root string

// Resolve follows the links in a path of the root and returns the path on this machine.
// Elements that do not exist yet stay as they are. The error is that links form a loop,
// or that the root cannot be read.
func (r Root) Resolve(p string) (string, error) {
	r.looked(p)
	return securejoin.SecureJoin(string(r), p)
}

// Shown returns a path of the root as a user of this machine would type it, for messages.
func (r Root) Shown(p string) string { return filepath.Join(string(r), p) }

// Exists reports whether a path of the root exists, with links followed.
func (r Root) Exists(p string) bool {
	real, err := r.Resolve(p)
	if err == nil {
		_, err = os.Lstat(real)
	}
	return err == nil
}

// Read reads a regular file of at most limit bytes. Its errors are those of
// [wholefile.Read] and Resolve.
func (r Root) Read(p string, limit int64) ([]byte, error) {
	real, err := r.Resolve(p)
	if err != nil {
		return nil, err
	}
	return wholefile.Read(real, limit)
}

// Same reports whether two paths are the same with links followed, whether or not the
// file exists. /var/run counts as /run, because it is a link to it on every machine of
// today, even if this root has no such link.
func (r Root) Same(a, b string) bool {
	resolve := func(p string) string {
		p = path.Clean(p)
		if rest, ok := strings.CutPrefix(p, "/var/run/"); ok {
			p = "/run/" + rest
		}
		if real, err := r.Resolve(p); err == nil {
			return real
		}
		return p
	}
	return resolve(a) == resolve(b)
}

// Glob returns the paths of the root that match an absolute pattern, sorted as
// filepath.Glob does. The error is that the pattern is bad, or that this user may not see
// what is there.
func (r Root) Glob(pattern string) ([]string, error) {
	dir := pattern
	for strings.ContainsAny(dir, `*?[\`) {
		dir = filepath.Dir(dir)
	}
	real, err := r.Resolve(dir)
	if err != nil {
		return nil, err
	}
	if err := visible(real, dir != pattern); err != nil {
		return nil, err
	}
	matches, err := filepath.Glob(filepath.Join(literal(real), strings.TrimPrefix(pattern, dir)))
	for i, match := range matches {
		matches[i] = filepath.Join(dir, strings.TrimPrefix(match, real))
	}
	return matches, err
}

// visible returns why this user cannot see whether there is a path, or what is in it.
// That there is none is no error.
func visible(path string, within bool) error {
	_, err := os.Lstat(path)
	if err == nil && within {
		var dir *os.File
		if dir, err = os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
			return dir.Close()
		}
	}
	if IsAbsent(err) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// literal returns a pattern that matches only this path.
func literal(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// Locate splits a path as the user typed it into root and path. A path that is not below
// this root has the root "/".
func (r Root) Locate(typed string) (Root, string) {
	// This fails only where there is no working directory, and so no such file.
	abs, _ := filepath.Abs(typed)
	root, _ := filepath.Abs(string(r))
	if rest, ok := strings.CutPrefix(abs, strings.TrimSuffix(root, "/")+"/"); ok {
		return r, "/" + rest
	}
	return "/", abs
}

// State is a text that changes when what a file says changes, or its mode; of a link,
// what it leads to. It is "" if there is none.
func State(name string) string {
	var st unix.Stat_t
	if name == "" || unix.Stat(name, &st) != nil {
		return ""
	}
	return fmt.Sprint(name, st.Ino, st.Ctim)
}

// Identity is a text that changes when another file takes the place of a file, and not
// when the file is written in place; "" if there is none. A file system may give the
// number of a file to the next one.
func Identity(name string) string {
	var st unix.Statx_t
	if name == "" || unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_INO|unix.STATX_BTIME, &st) != nil {
		return ""
	}
	return fmt.Sprint(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Btime.Sec, st.Btime.Nsec)
}

// IsAbsent reports whether an error says that a file does not exist.
func IsAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Reason returns an error without its path, for a message that names the path already.
func Reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
