package machine

import (
	"errors"
	"fmt"
	"os"
)

// errCrashed is the error of a machine whose QEMU crashed. In the one core that was read (7.2) a processor of the guest writes to memory
// of a device, and QEMU had tried to send files that were closed. It may be that hw/remote/mpqemu-link.c lets other threads run while it
// tells a proxy of a change of the guest's memory, in the middle of that change.
var errCrashed = errors.New("QEMU crashed")

// Crashed tells whether an error of [Machine.Boot] is that QEMU crashed.
func Crashed(err error) bool { return errors.Is(err, errCrashed) }

// Again calls boot, which boots a machine, and calls it again if its error is that QEMU crashed, twice at most.
func Again(name string, boot func() error) error {
	for left := 2; ; left-- {
		err := boot()
		if !Crashed(err) || left == 0 {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %v: it is booted again\n", name, err)
	}
}
