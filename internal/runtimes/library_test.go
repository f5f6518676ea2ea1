package runtimes

import "testing"

func TestCDILibrary(t *testing.T) {
	for _, c := range []struct{ consumer, version, want string }{
		{"containerd", "1.7.0", "0.5.0"},
		{"containerd", "2.2.9", "1.1.0"},
		{"containerd", "2.4.0", "1.1.1"},
		{"containerd", "v2.4.2-k3s1", "1.1.1"},
		{"podman", "4.3.1", "0.5.0"},
		{"podman", "3.0.0", ""},
		{"lxc", "1", ""},
	} {
		if got := CDILibrary(c.consumer, c.version); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.consumer, c.version, got, c.want)
		}
	}
}
