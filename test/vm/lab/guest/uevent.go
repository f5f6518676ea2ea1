package guest

import (
	"strings"

	"golang.org/x/sys/unix"
)

// listen calls event with the header (ACTION@DEVPATH) and the variables of each event of the kernel, until the socket is closed. It returns
// what closes it.
func listen(event func(header string, variables []string)) (stop func(), err error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return nil, err
	}
	// A read that waits does not end when the socket is closed.
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		return nil, err
	}
	ended, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		message := make([]byte, 1<<16)
		for {
			select {
			case <-end:
				_ = unix.Close(socket)
				return
			default:
			}
			if n, err := unix.Read(socket, message); err == nil {
				parts := strings.Split(strings.TrimRight(string(message[:n]), "\x00"), "\x00")
				event(parts[0], parts[1:])
			}
		}
	}()
	return func() { close(end); <-ended }, nil
}
