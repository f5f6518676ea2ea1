package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// runShort changes the node, or not, and has serve and a command look at it while this process can
// open few more files, or none. Each does as ever, or it fails: then serve writes nothing and sends
// no other list, and the command says why.
func (w *world) runShort() bool {
	changed := false
	for range w.rand.IntN(3) {
		changed = hardware[w.rand.IntN(len(hardware))].do(w) || changed
	}
	w.stirred = w.stirred || changed
	w.now = w.now.Add(time.Second)
	line := []string{"list", "topology", "cdi validate", "cdi diff", "allocate -n 2"}[w.rand.IntN(5)]
	list, files, health := w.listed(), w.kept(), w.keptHealth()
	descriptors := w.rand.IntN(20)
	restore := w.leave(descriptors)
	read := w.look()
	restore()
	if now := w.kept(); (!read || !changed) && (!slices.Equal(files, now) || !w.keepsTo(list)) {
		w.fail("with few descriptors, of a machine that it can read: %v, serve writes\n%v\n%v\nand lists %v, before %v",
			read, files, now, w.listed(), list)
	}
	if !read {
		w.count["looks that failed"]++
		if now := w.keptHealth(); now != health {
			w.fail("with few descriptors serve cannot read the machine, and writes the health\n%s\n%s", health, now)
		}
	}
	if err := thrice(func() error { return w.shortCommand(descriptors, line) }); err != nil {
		w.fail("%v", err)
	}
	return true
}

// keepsTo reports whether the kubelet's list is still this one, but for LPUs that have gone: that is
// said before the spec is corrected, for which there may be too few descriptors.
func (w *world) keepsTo(list map[string]string) bool {
	now := w.listed()
	for i, id := range w.ids() {
		if now[id] == api.Unhealthy && (!w.usable(i) || w.dead(i)) {
			list[id] = now[id]
		}
	}
	return maps.Equal(list, now)
}

// shortCommand wants a command to be right, or to fail for want of descriptors.
func (w *world) shortCommand(descriptors int, line string) error {
	restore := w.leave(descriptors)
	code, printed := w.lpuctl(strings.Fields(line)...)
	restore()
	if code == cli.ExitFailed && strings.Contains(printed, "too many open files") {
		w.count["commands that failed"]++
		return nil
	}
	if rightCode, right := w.lpuctl(strings.Fields(line)...); code != rightCode || untimed(printed) != untimed(right) {
		return fmt.Errorf("with %d descriptors %s ends with %d, not %d: %s\n%s", descriptors, line, code, rightCode, printed, right)
	}
	return nil
}

// untimed is what a command printed without the times of log lines.
func untimed(printed string) string {
	return regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(printed, "")
}

// leave leaves this process so many descriptors. Meanwhile no other world takes a step in it.
func (w *world) leave(descriptors int) (restore func()) {
	w.alone.RUnlock()
	w.alone.Lock()
	more := plant.LeaveDescriptors(w.t, descriptors)
	return func() {
		more()
		w.alone.Unlock()
		w.alone.RLock()
	}
}

// kept are the files that serve writes.
func (w *world) kept() []string { return w.written("var/run/cdi", "var/lib/lpuctl") }

// keptHealth is what serve has written of the LPUs' health, and when; "" if it has not.
func (w *world) keptHealth() string {
	data, _ := os.ReadFile(filepath.Join(w.root, "var/lib/lpuctl/health.json"))
	return string(data)
}
