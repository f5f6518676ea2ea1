// Package wholefile replaces whole files atomically or in place, and reads whole files of
// bounded size.
package wholefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Replace replaces a file, or makes it, with mode 0644. A reader sees all of the old
// bytes or all of the new ones, even if this process dies in between. The file and then
// its directory are synced. Paths that Refuse refuses are errors. Errors name path, not
// the temporary file beside it.
func Replace(path string, data []byte) error { return replaceWith(path, data, 0o644) }

// ReplacePrivate is [Replace] with mode 0600.
func ReplacePrivate(path string, data []byte) error { return replaceWith(path, data, 0o600) }

func replaceWith(path string, data []byte, mode fs.FileMode) error {
	if err := Refuse(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := replace(path, data, dir, mode); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: reason(err)}
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a directory.
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// Keep is [Replace] for a file that has other bytes, or that others can have written. It
// makes the directory.
func Keep(path string, data []byte) error {
	if have, err := ReadTrusted(path, int64(len(data))); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := MakeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return Replace(path, data)
}

// ReplaceUnsynced is Replace without syncing: for a file that can be made again at any
// time, such as one in /run.
func ReplaceUnsynced(path string, data []byte) error {
	if err := Refuse(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: reason(err)}
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return &fs.PathError{Op: "write", Path: path, Err: reason(err)}
	}
	return nil
}

// reason is an error of the operating system without the paths that it names.
func reason(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

// replace renames a new file into place. renameio.WriteFile would keep the permissions of
// the file that is there.
func replace(path string, data []byte, dir string, mode fs.FileMode) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// Overwrite writes a file in place, where it has to stay the same file because it is
// mounted by itself somewhere else. Where there is none it makes one, as [Replace] does.
// It is not atomic: a reader may see some of the old bytes and some of the new ones
// meanwhile. After an error the file has its old bytes.
func Overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Replace(path, data)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "write", Path: path, Err: errNotRegular}
	}
	old, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if err := overwrite(f, data); err != nil {
		return errors.Join(err, overwrite(f, old))
	}
	return nil
}

// overwrite never makes the file shorter before it has the new bytes, so that a full disk
// leaves room for the old ones.
func overwrite(f *os.File, data []byte) error {
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		return err
	}
	return f.Sync()
}

var errNotRegular = errors.New("not a regular file")

// ClearLeftovers removes the temporary files that a killed Replace has left beside path.
// The caller knows that none is under way.
func ClearLeftovers(path string) {
	eachLeftover(path, func(file string) { _ = os.Remove(file) })
}

// ClearOldLeftovers is ClearLeftovers where another process may be replacing the file: it
// leaves what was changed within an age.
func ClearOldLeftovers(path string, age time.Duration) {
	eachLeftover(path, func(file string) {
		if info, err := os.Lstat(file); err == nil && time.Since(info.ModTime()) > age {
			_ = os.Remove(file)
		}
	})
}

// eachLeftover calls a function with each temporary file beside path. Its name has a dot
// in front, and nothing but a number at the end. Any other file whose name begins so
// belongs to a user or another program, such as the swap file of an editor.
func eachLeftover(path string, do func(file string)) {
	dir, base := filepath.Split(path)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if number, ours := strings.CutPrefix(e.Name(), "."+base); ours && number != "" && strings.Trim(number, "0123456789") == "" {
			do(dir + e.Name())
		}
	}
}

// Refuse is an error if there is something at path that is not a regular file: a symbolic
// link may lead to a file that is not ours, and a device must not be replaced by a file.
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

// ErrTooLarge is the reason why [Read] does not read a whole file.
var ErrTooLarge = errors.New("larger than such a file can be")

// Read reads a regular file of at most limit bytes; of a larger one it returns the first
// limit+1 bytes with the error. It never waits: a FIFO is an error. Errors are
// *fs.PathError.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := fstat(f)
	if err != nil {
		return nil, err
	}
	if Kind(st.Mode) != "" {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return readAll(f, st.Size, limit)
}

// readAll reads an open file that had so many bytes when it was looked at.
func readAll(f *os.File, size, limit int64) ([]byte, error) {
	data := bytes.NewBuffer(make([]byte, 0, min(size, limit)+bytes.MinRead))
	n, err := data.ReadFrom(io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w (%d bytes)", ErrTooLarge, limit)}
	}
	return data.Bytes(), err
}
