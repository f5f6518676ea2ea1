package runtimes

import (
	"slices"
	"testing"
)

func TestSpecDirs(t *testing.T) {
	const version = "Package: containerd\nStatus: install ok installed\nVersion: 2.2.9\n"
	cri := func(dirs string) string {
		return "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\ncdi_spec_dirs = " + dirs + "\n"
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"no runtime": {nil, []string{"/etc/cdi", "/var/run/cdi"}},
		"told": {map[string]string{"usr/bin/containerd": "", "var/lib/dpkg/status": version, containerdConfig: cri(`["/srv/cdi"]`)},
			[]string{"/srv/cdi"}},
		"told, of no known version": {map[string]string{"usr/bin/containerd": "", containerdConfig: cri(`["/srv/cdi"]`)},
			[]string{"/etc/cdi", "/var/run/cdi"}},
		"two": {map[string]string{
			"usr/bin/containerd": "", "var/lib/dpkg/status": version, containerdConfig: cri(`["/srv/cdi"]`), "usr/bin/podman": "",
		}, []string{"/etc/cdi", "/srv/cdi", "/var/run/cdi"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			if got := SpecDirs(t.Context(), root); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
