package isolate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Nodes returns the paths of the character devices below a directory that have certain
// numbers (st_rdev). File systems that are mounted below it, such as /dev/shm, are left
// out, because only root makes device nodes, and no program makes them there.
func Nodes(dev string, numbers map[uint64]bool) (paths []string, err error) {
	var top unix.Stat_t
	if err := unix.Stat(dev, &top); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dev, Err: err}
	}
	err = filepath.WalkDir(dev, func(path string, entry fs.DirEntry, err error) error {
		var st unix.Stat_t
		switch {
		case err != nil && path != dev: // it is gone, or only root may see what is in it
			return nil
		case err != nil:
			return err
		case entry.IsDir() && path != dev:
			if unix.Lstat(path, &st) != nil || st.Dev != top.Dev {
				return fs.SkipDir
			}
		case entry.Type()&fs.ModeCharDevice != 0:
			if unix.Lstat(path, &st) == nil && numbers[st.Rdev] {
				paths = append(paths, path)
			}
		}
		return nil
	})
	return paths, err
}

// hide takes the hidden nodes out of this mount namespace, which must be one of its own.
// A directory below Dev is covered by one that has everything else. Dev itself is not,
// because later devices and mounts would not be seen there: a node in it, or elsewhere,
// stays and cannot be opened.
func (p *Program) hide() error {
	// What is mounted here is seen nowhere else.
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if err != nil {
		return forbidden(fmt.Errorf("mount: %w", err))
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, dir := range p.covered() {
		if err := p.cover(dir); err != nil {
			return err
		}
	}
	for _, path := range p.Hidden {
		if below, is := strings.CutPrefix(path, p.Dev+"/"); is && strings.Contains(below, "/") {
			continue // in a directory that is covered
		}
		if err := shut(path); err != nil {
			return err
		}
	}
	for _, c := range p.Covers {
		if err := over(c.Path, c.File, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	return os.Chdir(here) // by its name: a covered directory would still lead to what it hides
}

// closeDirectories closes the directories that the program would inherit: files can be
// opened below them that have no other name any more. A standard stream that is one
// becomes /dev/null.
func closeDirectories() error {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		unix.CloseOnExec(fd)
		if fd > 2 {
			continue
		}
		null, openErr := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if openErr == nil {
			openErr = errors.Join(unix.Dup3(int(null.Fd()), fd, 0), null.Close())
		}
		err = errors.Join(err, openErr)
	}
	return err
}

// covered are the directories in Dev that have hidden nodes, in it or below.
func (p *Program) covered() (dirs []string) {
	for _, path := range p.Hidden {
		below, is := strings.CutPrefix(path, p.Dev+"/")
		first, _, deeper := strings.Cut(below, "/")
		if dir := filepath.Join(p.Dev, first); is && deeper && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// cover mounts a new directory over one, and makes everything of the old one but the
// hidden nodes appear in it.
func (p *Program) cover(dir string) error {
	if err := unix.Chdir(dir); err != nil { // the way to the old directory, when the new one is there
		return &fs.PathError{Op: "chdir", Path: dir, Err: err}
	}
	if err := mount(p.Name, dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return err
	}
	return p.fill(dir, ".")
}

// fill makes the entries of an old directory appear in a new one.
func (p *Program) fill(dir, old string) error {
	entries, err := os.ReadDir(old)
	for _, entry := range entries {
		from, to := filepath.Join(old, entry.Name()), filepath.Join(dir, entry.Name())
		if !slices.Contains(p.Hidden, to) {
			err = errors.Join(err, p.show(from, to, entry.Type()))
		}
	}
	return err
}

// show makes a file or directory appear in another place.
func (p *Program) show(from, to string, kind fs.FileMode) error {
	switch {
	case kind&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case kind.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if slices.ContainsFunc(p.Hidden, func(hidden string) bool { return strings.HasPrefix(hidden, to+"/") }) {
			return p.fill(to, from)
		}
		return mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err := place(to, kind); err != nil {
		return err
	}
	return mount(from, to, "", unix.MS_BIND, "")
}

// place makes a file to mount a file on. Where that is a device, so is this, because
// readdir(3) tells those who list the directory what lies below the mount: the device
// 0:0, which does nothing and which anybody may make since Linux 5.8.
func place(path string, kind fs.FileMode) error {
	if kind&fs.ModeCharDevice != 0 && unix.Mknod(path, unix.S_IFCHR|0o600, 0) == nil {
		return nil
	}
	return os.WriteFile(path, nil, 0o600)
}

// shut makes a node one that no process can open: it becomes a mount on which no device
// works.
func shut(path string) error { return over(path, path, 0) }

// over mounts a file on another one, or on itself, without devices and with more flags.
// In a user namespace the flags that the mount has already cannot be taken away, so they
// are given again.
func over(path, file string, more uintptr) error {
	if err := mount(file, path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	flags := uintptr(st.Flags) & (unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if st.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	return mount("", path, "", flags|more|unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NODEV, "")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return &fs.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}
