package host

import (
	"fmt"
	"strconv"
	"strings"
)

// acceptsConnections is the flag of a socket that listens (__SO_ACCEPTCON of
// include/linux/net.h), as proc/net/unix shows it.
const acceptsConnections = 0x10000

// socketsMax is more bytes than the list of Unix sockets has on a busy machine.
const socketsMax = 16 << 20

// Listening returns the paths of the Unix sockets on which a program of the machine
// listens, as that program has named them. None is connected to: to connect may start
// what listens. Sockets of other network namespaces are not among them. The error is that
// they cannot be seen.
func (r Root) Listening() (map[string]bool, error) {
	// The process 1 is of the machine, also for who looks from a container.
	data, err := r.Read("/proc/1/net/unix", socketsMax)
	if err != nil {
		return nil, fmt.Errorf("which sockets are listened on: %w", err)
	}
	paths := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line) // Num RefCount Protocol Flags Type St Inode Path
		if len(words) < 8 {
			continue
		}
		if flags, err := strconv.ParseUint(words[3], 16, 32); err == nil && flags&acceptsConnections != 0 {
			paths[words[7]] = true
		}
	}
	return paths, nil
}
