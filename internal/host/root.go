// Package host reads a machine's files below a root, which need not be "/": a simulated node, or the host's root as a
// container sees it. A path is looked up as in a chroot: links may be absolute or climb, but nothing outside of
// the root is ever reached. No read waits for a FIFO or a device, and each is bounded.
package host

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// Root is the directory under which a machine lies, as people typed it.
type Root string

// Resolve is the path on this machine that a path of the root leads to. What does not exist yet is as it is written.
// The error says that links form a loop, or that the root cannot be used.
func (r Root) Resolve(p string) (string, error) { return securejoin.SecureJoin(string(r), p) }

// Shown is a path of the root as people here would type it.
func (r Root) Shown(p string) string { return filepath.Join(string(r), p) }

// Exists tells whether a path leads to something.
func (r Root) Exists(p string) bool {
	real, err := r.Resolve(p)
	if err == nil {
		_, err = os.Lstat(real)
	}
	return err == nil
}

// Read reads a regular file of at most limit bytes. Its errors are those of [wholefile.Read] and Resolve.
func (r Root) Read(p string, limit int64) ([]byte, error) {
	real, err := r.Resolve(p)
	if err != nil {
		return nil, err
	}
	return wholefile.Read(real, limit)
}

// Same tells whether two paths lead to the same place, whether or not anything is there. /var/run is a link to /run on
// every machine of today, also on one whose root has no such link.
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

// Glob finds the paths of the root that match an absolute pattern, sorted as filepath.Glob does.
func (r Root) Glob(pattern string) ([]string, error) {
	dir := pattern
	for strings.ContainsAny(dir, `*?[\`) {
		dir = filepath.Dir(dir)
	}
	real, err := r.Resolve(dir)
	if err != nil {
		return nil, err
	}
	matches, err := filepath.Glob(filepath.Join(literal(real), strings.TrimPrefix(pattern, dir)))
	for i, match := range matches {
		matches[i] = filepath.Join(dir, strings.TrimPrefix(match, real))
	}
	return matches, err
}

// literal is a pattern that matches just a path.
func literal(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// Locate finds a path as it is typed: a path of the root if it lies below, else one of this machine.
func (r Root) Locate(typed string) (Root, string) {
	abs, _ := filepath.Abs(typed) // this fails only where there is no working directory, and so no such file
	root, _ := filepath.Abs(string(r))
	if rest, ok := strings.CutPrefix(abs, strings.TrimSuffix(root, "/")+"/"); ok {
		return r, "/" + rest
	}
	return "/", abs
}

// IsAbsent tells a file that is not there from one that cannot be read.
func IsAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Reason is an error without the path, for a message that names the path already.
func Reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
