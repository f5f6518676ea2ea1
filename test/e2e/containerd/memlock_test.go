package containerd

import (
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestLockedMemory: containers of pods have the limit of locked memory that containerd itself has, so a drop-in of its unit raises it;
// those of nerdctl have it too, unless lpuctl run gives them one of their own.
func TestLockedMemory(t *testing.T) {
	const limit = "ulimit -S -l; ulimit -H -l"
	for _, release := range []string{"1.7.35", "2.2.9", "2.4.2"} {
		t.Run(release, func(t *testing.T) {
			e := newEngine(t, release)
			simulate(t)
			e.configure(map[string]string{"config.toml": tables.Replace("version = 2\n{2}\nenable_cdi = true\n")})
			e.under = []string{"sh", "-c", `ulimit -l 77; exec "$@"`, "sh"}
			if err := e.start(); err != nil {
				t.Fatal(err)
			}
			if got, err := e.runs(one, limit); err != nil || got != "77\n77\n" {
				t.Errorf("a pod: %v %q", err, got)
			}
			need(t, nerdctl())
			if got, err := said(t, byNerdctl(limit, "--rm")...); err != nil || got != "77\n77\n" {
				t.Errorf("nerdctl: %v %q", err, got)
			}
			run := []string{machine.Binary(t), "--quiet", "--root", nodeRoot, "run", "--no-lease", "--memlock", "64KiB", "--"}
			if got, err := said(t, append(run, byNerdctl(limit, "--rm", "{args}")...)...); err != nil || got != "64\n64\n" {
				t.Errorf("nerdctl started by lpuctl run: %v %q", err, got)
			}
		})
	}
}
