package bundle

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Unpack writes the node's tree into an empty directory, and returns what its files were
// on the node. Files that are no regular ones there are empty files here, apart from
// FIFOs.
func (b *Bundle) Unpack(dir string) (host.Recording, error) {
	r := host.Recording{Root: host.Root(dir), Now: b.Moment(), Wall: b.Index.Made, Files: map[host.Inode]host.Original{}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return r, err
	}
	defer root.Close()
	later := time.Since(b.Index.Made) // files are as old as they were
	var dirs []string
	for _, name := range b.Names() {
		p, ok := strings.CutPrefix(name, rootDir+"/")
		if !ok {
			continue
		}
		status, known := b.Index.Files["/"+p]
		if err := makeEntry(root, p, b.Entries[name], status); err != nil {
			return r, err
		}
		if b.Entries[name].Dir {
			dirs = append(dirs, p)
		}
		if !known || b.Entries[name].Link != "" {
			continue
		}
		inode, err := host.InodeOf(filepath.Join(dir, p))
		if err != nil {
			return r, err
		}
		r.Files[inode] = status.original()
		if err := age(root, p, status, later); err != nil {
			return r, err
		}
	}
	for _, p := range slices.Backward(dirs) { // when all is in them
		if status, known := b.Index.Files["/"+p]; known {
			if err := errors.Join(root.Chmod(p, os.FileMode(status.Mode&0o777)|0o700), age(root, p, status, later)); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// age gives a file the age that it had.
func age(root *os.Root, p string, s Status, later time.Duration) error {
	if s.Modified == 0 || s.Mode&unix.S_IFMT == unix.S_IFIFO {
		return nil
	}
	at := time.Unix(0, s.Modified).Add(later)
	return root.Chtimes(p, at, at)
}

func makeEntry(root *os.Root, p string, e *Entry, s Status) error {
	if err := root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	switch {
	case e.Dir:
		err := root.Mkdir(p, 0o755)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	case e.Link != "":
		return root.Symlink(e.Link, p)
	case s.Mode&unix.S_IFMT == unix.S_IFIFO:
		return unix.Mkfifo(filepath.Join(root.Name(), p), 0o600)
	}
	mode := os.FileMode(0o644)
	if s.Mode&unix.S_IFMT == unix.S_IFREG && s.Errno == 0 {
		mode = os.FileMode(s.Mode&0o777) | 0o400
	} else if s.Errno == int(unix.EACCES) {
		mode = 0
	}
	if err := root.WriteFile(p, e.Data, 0o600); err != nil {
		return err
	}
	return root.Chmod(p, mode)
}
