package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Unpack writes the node's tree into an empty directory of this user, and returns what its
// files were on the node. Files that are no regular ones there are empty files here, apart
// from FIFOs. What [Read] has let pass is not below a link.
func (b *Bundle) Unpack(dir string) (host.Recording, error) {
	r := host.Recording{Root: host.Root(dir), Now: b.Moment(), Wall: b.Index.Made, Files: map[host.Inode]host.Original{},
		By: uint32(max(0, b.Index.UID))} //nolint:gosec // a uid
	later := time.Since(b.Index.Made) // files are as old as they were
	made := map[string]bool{}
	var dirs []string
	for _, name := range b.Names() {
		p, ok := strings.CutPrefix(name, rootDir+"/")
		if !ok {
			continue
		}
		status, known := b.Index.Files["/"+p]
		e, real := b.Entries[name], filepath.Join(dir, p)
		if err := makeDirs(made, filepath.Dir(real)); err != nil {
			return r, err
		}
		if err := makeEntry(made, real, e, status); err != nil {
			return r, err
		}
		switch {
		case e.Dir:
			dirs = append(dirs, p)
		case known && e.Link == "":
			if err := keep(&r, real, status, later); err != nil {
				return r, err
			}
		}
	}
	for _, p := range slices.Backward(dirs) { // when all is in them
		if status, known := b.Index.Files["/"+p]; known {
			real := filepath.Join(dir, p)
			if err := errors.Join(os.Chmod(real, os.FileMode(status.Mode&0o777)|0o700), age(real, status, later)); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// keep notes what a file was, and gives it the age that it had.
func keep(r *host.Recording, real string, s Status, later time.Duration) error {
	inode, err := host.InodeOf(real)
	if err != nil {
		return err
	}
	r.Files[inode] = s.original()
	return age(real, s, later)
}

func age(real string, s Status, later time.Duration) error {
	if s.Modified == 0 || s.Mode&unix.S_IFMT == unix.S_IFIFO {
		return nil
	}
	at := time.Unix(0, s.Modified).Add(later)
	return os.Chtimes(real, at, at)
}

func makeDirs(made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	return os.MkdirAll(dir, 0o755)
}

// makeEntry makes what is at a path of this machine.
func makeEntry(made map[string]bool, real string, e *Entry, s Status) error {
	switch {
	case e.Dir:
		return makeDirs(made, real)
	case e.Link != "":
		return os.Symlink(e.Link, real)
	case s.Mode&unix.S_IFMT == unix.S_IFIFO:
		return unix.Mkfifo(real, 0o600)
	}
	if err := os.WriteFile(real, e.Data, 0o600); err != nil || s.Mode == 0 {
		return err
	}
	if s.Size > 0 { // it takes no room: there is nothing in it
		if err := os.Truncate(real, min(s.Size, TotalMax)); err != nil {
			return err
		}
	}
	mode := os.FileMode(0o644)
	if s.Mode&unix.S_IFMT == unix.S_IFREG && s.Errno == 0 {
		mode = os.FileMode(s.Mode&0o777) | 0o400
	} else if s.Errno == int(unix.EACCES) {
		mode = 0
	}
	return os.Chmod(real, mode)
}
