package lease

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Hook is the administrator's program that runs for each LPU after a lease of it. The next
// one gets the LPU if it ends with 0.
type Hook struct {
	Program string        // an absolute path; "": there is none, and it has succeeded
	Limit   time.Duration // after which it is killed, with its process group
}

const (
	killTime   = 2 * time.Second // after which a program counts as one that cannot be killed
	outputSaid = 4 << 10         // bytes of what the program says last that are logged
)

// environment is all that the hook gets. A node has no name if its path has a space.
func environment(l *discovery.LPU, uid int) []string {
	var nodes []string
	for _, n := range l.Nodes {
		nodes = append(nodes, n.Path)
	}
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LPUCTL_HOOK=release", "LPUCTL_LPU=" + l.Name,
		"LPUCTL_ADDRESS=" + l.Address.String(), "LPUCTL_NODE=" + strings.Join(nodes, " "), fmt.Sprint("LPUCTL_UID=", uid),
	}
}

// run runs the program once. said is what it has said last. The error is how it has failed.
func (h *Hook) run(ctx context.Context, env []string) (said string, err error) {
	if h.Program == "" {
		return "", nil
	}
	if err := wholefile.CheckProgram(h.Program); err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, h.Limit)
	defer cancel()
	cmd := exec.CommandContext(limited, h.Program)
	cmd.Dir, cmd.Env = "/", env
	// The kernel kills it if the arbiter is killed: it does so when the thread ends that has
	// started it, and that is this one as long as it runs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = killTime / 2 // what it has started may keep its output open
	var end tail
	cmd.Stdout, cmd.Stderr = &end, &end
	switch err = cmd.Run(); {
	case limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("it had not ended after %s, and was killed", rounded(h.Limit))
	case errors.Is(err, exec.ErrWaitDelay): // it has ended with 0
		err = nil
	}
	return strings.TrimSpace(string(end)), err
}

// tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(data []byte) (int, error) {
	all := append(*t, data...)
	*t = slices.Clone(all[max(0, len(all)-outputSaid):])
	return len(data), nil
}

// runHooks runs the hook on all LPUs where it is due, beside the loop of Serve: on one LPU
// one at a time.
func (a *Arbiter) runHooks(ctx context.Context) {
	if a.Hook == nil {
		return
	}
	for _, e := range a.book.due() {
		e.running = true
		a.hooks.Go(func() { a.runHook(ctx, e, environment(a.book.at(e.Address), e.UID)) })
	}
}

// runHook runs the hook on an LPU. One that cannot be killed has failed, and keeps its
// turn.
func (a *Arbiter) runHook(ctx context.Context, e *end, env []string) {
	type result struct {
		said string
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		said, err := a.Hook.run(ctx, env)
		ended <- result{said, err}
	}()
	late := time.NewTimer(a.Hook.Limit + killTime)
	defer late.Stop()
	var r result
	select {
	case r = <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(killTime):
		}
		return // it runs again with the next arbiter
	case <-late.C:
		go func() {
			<-ended
			a.do(func() { e.running = false })
		}()
		a.do(func() { a.hookEnded(e, "", errors.New("it has not ended, and cannot be killed")) })
		return
	}
	if ctx.Err() != nil { // it was killed
		return
	}
	a.do(func() {
		e.running = false
		a.hookEnded(e, r.said, r.err)
	})
}

// hookEnded takes how the hook has ended on an LPU. One that could not be started for want
// of processes, memory or descriptors, which users can take up, or because it was being
// written, has not failed: it is tried again after the next look.
func (a *Arbiter) hookEnded(e *end, said string, err error) {
	if host.IsShortage(err) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ETXTBSY) {
		a.Log.Warn("leases.hook cannot be started yet", "lpu", e.Name, "error", err)
		return
	}
	why := ""
	if err != nil {
		lines := strings.Split(said, "\n")
		if why = err.Error(); said != "" {
			why += ": " + lines[len(lines)-1]
		}
		a.Log.Warn("leases.hook has failed, and the LPU is kept back", "lpu", e.Name, "error", err, "output", said, "id", finding.LeaseHookFailed)
	} else {
		a.Log.Info("leases.hook has run", "lpu", e.Name, "output", said)
	}
	a.book.Cleaned(host.SinceBoot(), e, why)
	a.lookSoon()
}
