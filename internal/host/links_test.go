package host

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinksThatMayNotBeRead: who may list the open files of a process, and not see where they lead, does not see that there are none.
func TestLinksThatMayNotBeRead(t *testing.T) {
	runtime.LockOSThread() // the thread, which has fewer capabilities now, ends with the goroutine of the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	sets[0].Effective, sets[1].Effective = sets[0].Effective&(1<<unix.CAP_DAC_READ_SEARCH), 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	const dir = "/proc/1/fd"
	denied := false
	if entries, err := os.ReadDir(dir); err == nil {
		for _, e := range entries {
			_, err := os.Readlink(dir + "/" + e.Name())
			denied = denied || errors.Is(err, fs.ErrPermission)
		}
	} else {
		denied = true // an ordinary user may not even list them
	}
	tree, err := Root("/").Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	links, err := tree.Links(dir)
	if errors.Is(err, fs.ErrPermission) != denied {
		t.Errorf("%d links, %v; one may not be read: %t", len(links), err, denied)
	}
	t.Logf("one may not be read: %t", denied)
}
