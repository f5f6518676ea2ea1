package launch

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// TestMemlockIsOfNoMatterToARefusal: how much memory the command could lock is said when it starts, and not before run refuses to start it.
func TestMemlockIsOfNoMatterToARefusal(t *testing.T) {
	refused := errors.New("none are free")
	var said []finding.ID
	j := &Job{Args: []string{"true"}, Options: Options{NoLease: true, NoIsolation: true}}
	j.Look = func(context.Context) (*discovery.Inventory, allocate.Wish, error) {
		return &discovery.Inventory{}, allocate.Wish{}, nil
	}
	j.Decide = func(*discovery.Inventory, allocate.Wish) (*allocate.Decision, error) { return nil, refused }
	j.Say = func(string, ...any) {}
	j.Report = func(findings finding.List) {
		for _, f := range findings {
			said = append(said, f.ID)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and it ends with this, so that root has its rights again
		var none [2]unix.CapUserData
		limit.Max = min(limit.Max, 1<<30)
		limit.Cur = min(limit.Cur, limit.Max)
		if err := errors.Join(unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit),
			unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])); err != nil {
			ended <- err
			return
		}
		j.Memlock = limit.Max + 1
		err := j.Run(t.Context())
		if len(said) > 0 {
			t.Errorf("a refusal: %v", said)
		}
		j.warnOfMemlock()
		ended <- err
	}()
	if err := <-ended; !errors.Is(err, refused) {
		t.Error(err)
	}
	if len(said) != 1 || said[0] != finding.MemlockLow {
		t.Errorf("a start: %v", said)
	}
}
