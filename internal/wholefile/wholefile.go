// Package wholefile replaces and reads files as a whole.
package wholefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Replace replaces a file, or makes it, with mode 0644, so that a reader sees the old bytes or the new ones,
// whenever this process dies. The file and then its directory are synced. It refuses what Refuse does.
func Replace(path string, data []byte) error {
	if err := Refuse(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o644)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems cannot sync a directory
		return err
	}
	return nil
}

// Refuse refuses a path where something is that is no regular file: a link may lead to somebody else's file,
// and nobody wants a device replaced by a file.
func Refuse(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		kind := map[fs.FileMode]string{fs.ModeSymlink: "a symbolic link, ", fs.ModeDir: "a directory, "}[info.Mode().Type()]
		return fmt.Errorf("%s: %snot a regular file; lpuctl does not replace it", path, kind)
	}
	return nil
}

// Read reads a regular file of at most most bytes. It never waits: a FIFO is refused. Its errors are *fs.PathError.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	data := bytes.NewBuffer(make([]byte, 0, min(info.Size(), most)+bytes.MinRead))
	n, err := data.ReadFrom(io.LimitReader(f, most+1))
	if err == nil && n > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than such a file can be (%d bytes)", most)}
	}
	return data.Bytes(), err
}
