package host

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// Kept is a directory of which some files stay open, to be read again and again. In sysfs an open file is never that of another device:
// when its device or its driver has gone, a read fails. What is open is closed when the Kept is not used any more.
type Kept struct {
	dir     *Dir
	files   []int // -1: there was no such file
	cleanup runtime.Cleanup
}

// Keep keeps the directory, and opens those of the files that are there. The directory is not to be used or closed after it.
func (d *Dir) Keep(names ...string) *Kept {
	k := &Kept{dir: d, files: make([]int, len(names))}
	for i, name := range names {
		if fd, err := d.open(name); err == nil {
			k.files[i] = fd
		} else {
			k.files[i] = -1
		}
	}
	k.cleanup = runtime.AddCleanup(k, closeAll, append([]int{d.fd}, k.files...))
	return k
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// Close closes everything at once.
func (k *Kept) Close() {
	k.cleanup.Stop()
	closeAll(append([]int{k.dir.fd}, k.files...))
}

// Len is the number of files.
func (k *Kept) Len() int { return len(k.files) }

// LinkName is [Dir.LinkName].
func (k *Kept) LinkName(name string) (string, error) {
	defer runtime.KeepAlive(k) // else its descriptors could be closed meanwhile
	return k.dir.LinkName(name)
}

// Read returns at most 128 bytes from the start of file i of those that were named, or the text of the error; "" if there was no such
// file. It is not ok if the file is not there any more.
func (k *Kept) Read(i int) (text string, ok bool) {
	defer runtime.KeepAlive(k)
	fd := k.files[i]
	if fd < 0 {
		return "", true
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink == 0 { // it was removed, or another one was put in its place
		return "", false
	}
	var buffer [128]byte
	n, err := retry(func() (int, error) { return unix.Pread(fd, buffer[:], 0) })
	if err != nil {
		return err.Error(), !errors.Is(err, unix.ENODEV)
	}
	return string(buffer[:n]), true
}
