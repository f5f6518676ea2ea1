package runtimes

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

// A config file holds far less, and a package database too.
const (
	configMax   = 1 << 20
	databaseMax = 64 << 20
)

// machine is a machine's file tree. Its paths are looked up as in a chroot at the root.
type machine struct{ root string }

// real is where a path of the machine leads here.
func (m machine) real(p string) (string, error) { return securejoin.SecureJoin(m.root, p) }

// shown is a path of the machine as people here would type it.
func (m machine) shown(p string) string { return filepath.Join(m.root, p) }

func (m machine) exists(p string) bool {
	real, err := m.real(p)
	if err == nil {
		_, err = os.Lstat(real)
	}
	return err == nil
}

// same tells whether two paths lead to the same, also by way of links such as /var/run, whether or not it is there.
func (m machine) same(a, b string) bool {
	resolve := func(p string) string {
		p = path.Clean(p)
		if rest, ok := strings.CutPrefix(p, "/var/run/"); ok {
			p = "/run/" + rest
		}
		if real, err := m.real(p); err == nil {
			return real
		}
		return p
	}
	return resolve(a) == resolve(b)
}

// read reads a config file.
func (m machine) read(p string) ([]byte, error) { return m.readUpTo(p, configMax) }

// readUpTo reads a regular file of at most some bytes. It never waits for a FIFO or a device.
func (m machine) readUpTo(p string, limit int64) ([]byte, error) {
	real, err := m.real(p)
	if err != nil {
		return nil, err
	}
	return wholefile.Read(real, limit)
}

// reason is an error without the path, which is told beside it.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err.Error()
}

// glob finds the machine's paths that match an absolute pattern, sorted as filepath.Glob does.
func (m machine) glob(pattern string) ([]string, error) {
	dir := pattern
	for strings.ContainsAny(dir, `*?[\`) {
		dir = filepath.Dir(dir)
	}
	real, err := m.real(dir)
	if err != nil {
		return nil, err
	}
	matches, err := filepath.Glob(filepath.Join(quoted(real), strings.TrimPrefix(pattern, dir)))
	for i, match := range matches {
		matches[i] = filepath.Join(dir, strings.TrimPrefix(match, real))
	}
	return matches, err
}

// quoted is a pattern that matches a path as it is.
func quoted(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// typed finds a path as typed: on the machine if it lies below the root, else on this one.
func (m machine) typed(p string) (machine, string) {
	abs, _ := filepath.Abs(p) // this fails only where there is no working directory, and so no such file
	root, _ := filepath.Abs(m.root)
	if rest, ok := strings.CutPrefix(abs, strings.TrimSuffix(root, "/")+"/"); ok {
		return m, "/" + rest
	}
	return machine{"/"}, abs
}
