package containerd

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/docs"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestTutorial: nerdctl and ctr do what docs/start-nerdctl.md says.
func TestTutorial(t *testing.T) {
	need(t, nerdctl())
	e := newEngine(t, "2.4.2")
	root := filepath.Join(t.TempDir(), "orion")
	machine.Lpuctl(t, "--quiet", "simulate", root)
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/start-nerdctl.md")
	if err != nil {
		t.Fatal(err)
	}
	byShell := regexp.MustCompile(`^sudo nerdctl run --rm --device (\S+) busybox sh -c '(.+)'$`)
	byCtr := regexp.MustCompile(`^sudo ctr run --rm --device (\S+) docker\.io/library/busybox:latest (.+)$`)
	runs := 0
	replayed := docs.Replay(string(page), func(command string) (string, bool) {
		var start []string
		if m := byShell.FindStringSubmatch(command); m != nil {
			start = byNerdctl(m[2], "--rm", "--device", m[1])
		} else if m := byCtr.FindStringSubmatch(command); m != nil {
			start = slices.Concat([]string{"ctr", "run", "--rm", "--device", m[1], machine.Image}, strings.Fields(m[2]))
		} else {
			return "", false
		}
		runs++
		output, err := said(t, start...)
		if err != nil {
			t.Error(err)
		}
		return output, true
	})
	if runs < 2 || replayed != string(page) {
		t.Errorf("%d containers ran; the page would be:\n%s", runs, replayed)
	}
}
