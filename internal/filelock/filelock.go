// Package filelock makes programs that change the same file take turns.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// timeout is how long Hold waits for another lpuctl. One needs a second for a card that
// hangs, else milliseconds; those that wait for it to write the spec take its result.
const timeout = 10 * time.Second

// Between two tries to get the lock there is a pause, which doubles with each try: many
// that wait must not take the processors from the one that has it.
const (
	minPause = 2 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Hold waits for the lock of a file, at most ten seconds, and makes the directory if it
// is not there. The lock is another file beside it, .NAME.lock without .json, that only
// its owner can open: one that others can open, they can lock for ever. Closing the lock
// lets others have it.
func Hold(ctx context.Context, path string) (lock *os.File, err error) {
	name := nameOf(path)
	if err := wholefile.MakeDir(filepath.Dir(name)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		lock, err = open(name)
		if err != nil {
			return nil, err
		}
		switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil && isAt(lock, name):
			return lock, nil
		case err == nil: // it was replaced in the meantime
			lock.Close()
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			lock.Close()
			return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
		}
		lock.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: another lpuctl holds the lock: %w", name, ctx.Err())
		}
		time.Sleep(pause/2 + rand.N(pause))
	}
}

// nameOf is the name of the lock of a file.
func nameOf(path string) string {
	dir, base := filepath.Split(path)
	return filepath.Join(dir, "."+strings.TrimSuffix(base, ".json")+".lock")
}

// open opens the lock file. One that others can open, as lpuctl 0.1 made it, is replaced:
// a process of another user may hold it.
func open(name string) (*os.File, error) {
	for range 2 {
		lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		info, err := lock.Stat()
		if err == nil && info.Mode().Perm()&0o077 == 0 {
			return lock, nil
		}
		lock.Close()
		if err != nil {
			return nil, err
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: others can open it, whatever its mode: choose a directory of another file system", name)
}

// isAt reports whether an open file is still the one of this name.
func isAt(file *os.File, name string) bool {
	now, err := os.Lstat(name)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(now, opened)
}
