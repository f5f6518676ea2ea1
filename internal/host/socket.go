package host

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Listens reports whether a program listens at a socket that is a file of this machine. A
// program that is killed leaves its socket behind. The error is that this user cannot see
// it, such as without the right to connect.
func Listens(path string) (bool, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, err
}
