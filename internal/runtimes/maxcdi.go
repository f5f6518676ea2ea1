package runtimes

import (
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/versions"
)

// Consumers are the names that MaxCDI knows.
func Consumers() []string { return []string{"containerd", "cri-o", "docker", "podman"} }

// MaxCDI is the highest cdiVersion that a release of a consumer loads; "" if it has no
// CDI. The error says what is wrong with the consumer or the version.
func MaxCDI(consumer, version string) (string, error) {
	if steps()[consumer] == nil || version == "" {
		return "", fmt.Errorf("expected one of %s, = and a version, such as podman=4.3.1", strings.Join(Consumers(), ", "))
	}
	r := versions.Parse(version)
	if !r.Known() {
		return "", fmt.Errorf("%q is not a version, such as 4.3.1", version)
	}
	return latest(r, steps()[consumer]), nil
}

// step is a release, and the highest cdiVersion that a consumer loads from that release
// on.
type step struct{ since, cdi string }

// steps are the CDI libraries that every release of a line was built with: a library
// knows cdiVersions up to its own. podman 4.3.1, containerd 1.7.35, 2.2.9 and 2.4.2 were
// measured, the others are read from go.mod (Docker: vendor.mod) of every tag from the
// first with CDI on, up to containerd 2.3.4, podman 5.8.2, Docker 29.2.0 and CRI-O
// 1.36.3. Maintenance releases take later libraries over too: Docker 25.0.17 has a newer
// one than 26.0.
func steps() map[string][]step {
	return map[string][]step{
		"containerd": {
			{"1.7.0", "0.5.0"}, {"1.7.12", "0.6.0"}, {"1.7.16", "0.7.0"}, {"1.7.27", "0.8.0"}, {"2.0.5", "1.0.0"}, {"2.2.1", "1.1.0"},
		},
		"podman": {
			{"4.1.0", "0.4.0"}, {"4.3.0", "0.5.0"}, {"4.7.0", "0.6.0"}, {"5.1.0", "0.7.0"}, {"5.2.0", "0.8.0"}, {"5.5.0", "1.0.0"},
		},
		"docker": {
			{"25.0.0", "0.6.0"}, {"25.0.17", "0.8.0"}, {"26.0.0", "0.6.0"}, {"26.1.0", "0.7.0"}, {"27.4.0", "0.8.0"}, {"28.1.0", "1.0.0"},
			{"29.2.0", "1.1.0"},
		},
		"cri-o": {
			{"1.24.0", "0.3.0"}, {"1.25.0", "0.5.0"}, {"1.28.0", "0.6.0"}, {"1.30.0", "0.7.0"}, {"1.31.0", "0.8.0"}, {"1.33.0", "1.0.0"},
			{"1.35.0", "1.1.0"},
		},
	}
}

// latest returns the last step that the release has reached.
func latest(r release, all []step) (cdi string) {
	for _, s := range all {
		if !r.Before(s.since) {
			cdi = s.cdi
		}
	}
	return cdi
}
