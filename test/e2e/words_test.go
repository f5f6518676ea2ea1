package e2e

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/docs"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestErrorWords: podman prints what docs/error-words.md says that it prints, in the case of which the page speaks.
func TestErrorWords(t *testing.T) {
	p := newPodman(t)
	messages, err := docs.Messages("../../" + docs.ErrorWords)
	if err != nil {
		t.Fatal(err)
	}
	prints := func(message string, r machine.Result) {
		t.Helper()
		if !slices.Contains(messages["podman"], message) {
			t.Errorf("%s does not have %q", docs.ErrorWords, message)
		}
		for _, part := range docs.Parts(message) {
			if !strings.Contains(r.Stderr, part) {
				t.Errorf("podman does not print %q, of %q, but: %s", part, message, r.Stderr)
			}
		}
	}
	const (
		unresolvable = "Error: setting up CDI devices: unresolvable CDI devices hyperaccel.ai/lpu=NAME"
		gone         = `Error: setting up CDI devices: failed to inject devices: failed to stat CDI host device "PATH": no such file or directory`
	)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	prints(unresolvable, p.Run(t, "true", device("0")...))
	prints("Error: stat NAME: no such file or directory", p.Run(t, "true", "--device", "lpu0"))
	if err := os.Remove("/dev/lpu1"); err != nil {
		t.Fatal(err)
	}
	prints(gone, p.Run(t, "true", device("lpu1")...))
	machine.Lpuctl(t, "--root", root, "cdi", "remove")
	prints(unresolvable, p.Run(t, "true", device("lpu0")...))
	for edits, message := range map[string]string{
		`"deviceNodes": [{"path": "/etc/hosts"}]`:                             `failed to stat CDI host device "PATH": not a device node`,
		`"mounts": [{"hostPath": "/opt/nowhere", "containerPath": "/opt/a"}]`: `error mounting "PATH" to rootfs at "PATH"`,
		`"hooks": [{"hookName": "createContainer", "path": "/nowhere"}]`:      "error running hook #N",
	} {
		machine.Write(t, "/run/cdi/x.json",
			`{"cdiVersion": "0.5.0", "kind": "hyperaccel.ai/lpu", "devices": [{"name": "lpu0", "containerEdits": {`+edits+`}}]}`)
		prints(message, p.Run(t, "true", device("lpu0")...))
	}
	config := t.TempDir() + "/containers.conf"
	machine.Write(t, config, "[engine]\nevents_logger = 3\n")
	t.Setenv("CONTAINERS_CONF", config)
	prints("incompatible types: TOML value has type VALUE", p.Run(t, "true"))
}

// TestTutorial: podman does what docs/start-podman.md says.
func TestTutorial(t *testing.T) {
	p := newPodman(t)
	root := simulate(t)
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	page, err := os.ReadFile("../../docs/start-podman.md")
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`^podman run --rm --device (\S+) docker\.io/library/busybox sh -c '(.+)'$`)
	runs := 0
	replayed := docs.Replay(string(page), func(command string) (string, bool) {
		m := start.FindStringSubmatch(command)
		if m == nil {
			return "", false
		}
		runs++
		r := p.Run(t, m[2], "--device", m[1])
		if r.Code != 0 {
			t.Error(errors.New(r.Stderr))
		}
		return r.Stdout, true
	})
	if runs == 0 || replayed != string(page) {
		t.Errorf("%d containers ran; the page would be:\n%s", runs, replayed)
	}
}
