package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Kept is a directory that stays open, so that its files can be read again and again
// without a look at the path. In sysfs an open directory is never that of another device:
// when its device has gone, nothing is in it. It is closed when the Kept is not used any
// more.
type Kept struct {
	dir     *Dir
	cleanup runtime.Cleanup
}

// Keep keeps the directory. It is not to be used or closed after it.
func (d *Dir) Keep() *Kept {
	k := &Kept{dir: d}
	k.cleanup = runtime.AddCleanup(k, func(fd int) { _ = unix.Close(fd) }, d.fd)
	return k
}

// Close closes it at once.
func (k *Kept) Close() {
	k.cleanup.Stop()
	k.dir.Close()
}

// LinkName is [Dir.LinkName].
func (k *Kept) LinkName(name string) (string, error) {
	defer runtime.KeepAlive(k) // else its descriptor could be closed meanwhile
	return k.dir.LinkName(name)
}

// Read returns at most 128 bytes from the start of a file of the directory. It does not
// ask first what kind of file it is, because that takes a call of the kernel more: it
// does not wait for a FIFO, but it would open a device.
func (k *Kept) Read(name string) (string, error) {
	defer runtime.KeepAlive(k)
	fd, err := k.dir.openHere(name)
	if err != nil {
		return "", k.dir.Fault(name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var buffer [128]byte
	n, err := retry(func() (int, error) { return unix.Read(fd, buffer[:]) })
	if err != nil {
		return "", k.dir.Fault(name, err)
	}
	return string(buffer[:n]), nil
}
