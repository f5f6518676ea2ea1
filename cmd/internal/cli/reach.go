package cli

import "github.com/hyperaccel/lpuctl/internal/host"

// OutOfReach is [host.OutOfReach] as a reason to end.
func OutOfReach(dir string) error {
	if err := host.OutOfReach(dir); err != nil {
		return WithRemedy(err, "start it again, as systemd and the kubelet do, and it sees the directory that is there by then;"+
			" if that is read-only, remount it")
	}
	return nil
}
