package runtimes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
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

// read reads a regular file of bounded size. It never waits for a FIFO or a device.
func (m machine) read(p string, limit int64) ([]byte, error) {
	real, err := m.real(p)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(real, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"))
	}
	data := bytes.NewBuffer(make([]byte, 0, min(info.Size(), limit)+bytes.MinRead))
	n, err := data.ReadFrom(io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("larger than such a file can be (%d bytes)", limit)
	}
	return data.Bytes(), err
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
	literal := strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(real)
	matches, err := filepath.Glob(filepath.Join(literal, strings.TrimPrefix(pattern, dir)))
	for i, match := range matches {
		matches[i] = filepath.Join(dir, strings.TrimPrefix(match, real))
	}
	return matches, err
}

// typed finds a path as typed: on the machine if it lies below the root, else on this one.
func (m machine) typed(p string) (machine, string, error) {
	abs, err := filepath.Abs(p)
	root, rootErr := filepath.Abs(m.root)
	if rest, ok := strings.CutPrefix(abs, strings.TrimSuffix(root, "/")+"/"); ok {
		return m, "/" + rest, errors.Join(err, rootErr)
	}
	return machine{"/"}, abs, errors.Join(err, rootErr)
}
