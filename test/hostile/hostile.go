// Package hostile has for tests what an attacker would use.
package hostile

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Lingering is a descriptor whose last close sleeps for an hour, or until the test ends.
func Lingering(t testing.TB) int {
	t.Helper()
	fd, listener, err := lingering()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(listener) }) // which resets the connection
	return fd
}

// lingering is a TCP connection with SO_LINGER and data that is not read.
func lingering() (fd, listener int, err error) {
	if listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_RCVBUF, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}),
		unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(listener, 1))
	if err != nil {
		return 0, 0, err
	}
	at, err := unix.Getsockname(listener)
	if err == nil {
		err = unix.Connect(fd, at)
	}
	for err == nil { // until there is room for no more
		_, err = unix.SendmsgN(fd, make([]byte, 1<<12), nil, nil, unix.MSG_DONTWAIT)
	}
	if !errors.Is(err, unix.EAGAIN) {
		return 0, 0, err
	}
	return fd, listener, nil
}
