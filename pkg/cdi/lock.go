package cdi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// lockTimeout is how long Hold waits for another lpuctl. One needs a second for a card that hangs, else milliseconds; those that
// wait for it take its result.
const lockTimeout = 10 * time.Second

// Between two tries to get the lock there is a pause, which doubles with each try: many that wait must not take the processors from
// the one that has it.
const (
	minPause = 2 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Held is a spec file under its lock. No other lpuctl changes the file until Release. Whoever writes a spec scans the machine under
// the lock too: else an older scan could replace a newer spec.
type Held struct {
	File
	lock *os.File
}

// Hold waits for the lock of the file, and makes the directory if it is not there. The lock is a file that only its owner can
// open: one that others can open, they can lock for ever. The caller calls Release.
func (f File) Hold(ctx context.Context) (*Held, error) {
	if err := wholefile.MakeDir(filepath.Dir(f.Path)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	name := filepath.Join(filepath.Dir(f.Path), "."+strings.TrimSuffix(filepath.Base(f.Path), ".json")+".lock")
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		lock, err := openLock(name)
		if err != nil {
			return nil, err
		}
		switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil && isAt(lock, name):
			return &Held{f, lock}, nil
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

// openLock opens the lock file. A lock file that others can open, as lpuctl 0.1 made it, is replaced: somebody may hold it.
func openLock(name string) (*os.File, error) {
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

// isAt tells whether an open file is still the one of this name.
func isAt(file *os.File, name string) bool {
	now, err := os.Lstat(name)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(now, opened)
}

// Release lets others have the lock.
func (h *Held) Release() { h.lock.Close() }

// result is what the lock file says of the last spec that was written under it, so that those who waited for it need not scan again.
type result struct {
	host.Moment        // when its scan began
	Request     string `json:"request"` // what was asked for
	Sum         string `json:"sum"`     // of the bytes of the spec, in hexadecimal; "" if there is none
	// Outcome is what the caller of Remember wants to know.
	Outcome json.RawMessage `json:"outcome"`
}

// Remember notes that the file holds what a scan found that began at a moment. request identifies everything else that the spec
// depends on.
func (h *Held) Remember(began host.Moment, request string, outcome any) error {
	text, err := json.Marshal(outcome)
	if err == nil {
		text, err = json.Marshal(result{began, request, h.sum(), text})
	}
	if err == nil {
		err = h.lock.Truncate(0)
	}
	if err == nil {
		_, err = h.lock.WriteAt(text, 0)
	}
	return err
}

// Recall finds out whether the file holds the result of the same request with a scan that began after a moment. If so, it fills in
// outcome.
func (h *Held) Recall(after host.Moment, request string, outcome any) bool {
	var r result
	return json.NewDecoder(h.lock).Decode(&r) == nil && r.Request == request && r.After(after) && r.Sum == h.sum() &&
		json.Unmarshal(r.Outcome, outcome) == nil
}

func (h *Held) sum() string {
	data, err := h.Read()
	if err != nil || data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Write puts the spec in place: written beside, synced, renamed, read back. It renames even when the bytes
// are the same as before, because that is what makes runtimes forget device numbers they remember. A reader
// sees the old file or the new one, whenever this process dies. While another file in the directory defines devices of the spec, it
// writes what is [File.Writable], and returns the *Conflict.
func (h *Held) Write(spec *specs.Spec) error {
	rest, conflict := h.Writable(spec)
	if _, ok := errors.AsType[*Conflict](conflict); conflict != nil && !ok {
		return conflict
	}
	if rest == nil {
		_, err := h.Remove()
		return cmp.Or(err, conflict)
	}
	data, err := Marshal(rest)
	if err != nil {
		return err
	}
	h.clearLeftovers()
	if err := wholefile.Replace(h.Path, data); err != nil {
		return err
	}
	return cmp.Or(h.readBack(data), conflict)
}

// Remove takes the file away and tells whether there was one. It touches no other file.
func (h *Held) Remove() (removed bool, err error) {
	if err := wholefile.Refuse(h.Path); err != nil {
		return false, err
	}
	h.clearLeftovers()
	err = os.Remove(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// clearLeftovers removes what a killed Write left behind; the lock says that none is under way.
func (h *Held) clearLeftovers() {
	dir, base := filepath.Split(h.Path)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+base) {
			_ = os.Remove(dir + e.Name())
		}
	}
}
