package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeDir makes a directory and its parents, as far as they are missing, with mode 0755
// whatever the umask: all users read the files in them.
func MakeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := MakeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist): // another process made it in the meantime
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, 0o755)
}
