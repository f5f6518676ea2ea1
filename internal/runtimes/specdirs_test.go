package runtimes

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

func TestOrders(t *testing.T) {
	const version = "Package: containerd\nStatus: install ok installed\nVersion: 2.2.9\n\n"
	const podman = "Package: podman\nStatus: install ok installed\nVersion: "
	cri := func(dirs string) string {
		return "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\ncdi_spec_dirs = " + dirs + "\n"
	}
	for name, test := range map[string]struct {
		files    map[string]string
		want     string // of each runtime its name, its CDI library, and its directories, the highest priority last
		wantDirs string
	}{
		"no runtime": {nil, "[{  [/etc/cdi /var/run/cdi]}]", "[/etc/cdi /var/run/cdi]"},
		"the other way round": {map[string]string{"usr/bin/containerd": "", "var/lib/dpkg/status": version,
			containerdConfig: cri(`["/var/run/cdi", "/etc/cdi"]`)},
			"[{containerd 2.2.9 1.1.0 [/var/run/cdi /etc/cdi]}]", "[/etc/cdi /var/run/cdi]"},
		"of no known version": {map[string]string{"usr/bin/containerd": "", containerdConfig: cri(`["/srv/cdi"]`)},
			"[{containerd  [/etc/cdi /var/run/cdi]}]", "[/etc/cdi /var/run/cdi]"},
		"two": {map[string]string{"usr/bin/containerd": "", containerdConfig: cri(`["/srv/cdi"]`),
			"usr/bin/podman": "", "var/lib/dpkg/status": version + podman + "4.3.1\n"},
			"[{containerd 2.2.9 1.1.0 [/srv/cdi]} {podman 4.3.1 0.5.0 [/etc/cdi /var/run/cdi]}]", "[/etc/cdi /srv/cdi /var/run/cdi]"},
		"one too old": {map[string]string{"usr/bin/podman": "", "var/lib/dpkg/status": podman + "4.0.3\n"},
			"[{  [/etc/cdi /var/run/cdi]}]", "[/etc/cdi /var/run/cdi]"},
		"one that reads none": {map[string]string{"usr/bin/podman": "", "var/lib/dpkg/status": podman + "5.6.0\n",
			"etc/containers/containers.conf": "[engine]\ncdi_spec_dirs = []\n"}, "[{podman 5.6.0 1.0.0 []}]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			if got := fmt.Sprint(Orders(t.Context(), root)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got := fmt.Sprint(specDirs(t.Context(), root)); got != test.wantDirs {
				t.Errorf("got %v, want %v", got, test.wantDirs)
			}
		})
	}
}

// specDirs are the directories of all orders, sorted.
func specDirs(ctx context.Context, root string) (dirs []string) {
	for _, o := range Orders(ctx, root) {
		dirs = append(dirs, o.Dirs...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
