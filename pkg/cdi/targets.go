package cdi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Target is a consumer of specs at a version: "podman=4.3.1".
type Target struct {
	Consumer, Release string
	// Newest is the highest cdiVersion it loads; "": it knows no CDI.
	Newest string
}

// step is from which release on a consumer loads specs up to a cdiVersion.
type step struct {
	from   [3]int
	newest string
}

// steps are the CDI libraries that releases were built with: a library knows cdiVersions up to its own. podman 4.3.1,
// containerd 1.7.35, 2.2.9 and 2.4.2 were measured, the others are read from their go.mod.
func steps() map[string][]step {
	return map[string][]step{
		"containerd": {{[3]int{1, 7, 0}, "0.5.0"}, {[3]int{1, 7, 12}, "0.6.0"}, {[3]int{1, 7, 16}, "0.7.0"}, {[3]int{1, 7, 27}, "0.8.0"}, {[3]int{2, 1, 0}, "1.0.0"}, {[3]int{2, 2, 1}, "1.1.0"}},
		"podman":     {{[3]int{4, 1, 0}, "0.5.0"}, {[3]int{4, 9, 0}, "0.6.0"}, {[3]int{5, 4, 0}, "0.8.0"}, {[3]int{5, 8, 0}, "1.0.0"}},
		"docker":     {{[3]int{25, 0, 0}, "0.6.0"}, {[3]int{28, 0, 0}, "0.8.0"}, {[3]int{28, 2, 0}, "1.0.0"}},
		"cri-o":      {{[3]int{1, 28, 0}, "0.6.0"}, {[3]int{1, 30, 0}, "0.7.0"}, {[3]int{1, 32, 0}, "0.8.0"}, {[3]int{1, 34, 0}, "1.0.0"}},
	}
}

// Consumers are the names that ParseTarget knows.
func Consumers() []string { return []string{"containerd", "cri-o", "docker", "podman"} }

// ParseTarget reads CONSUMER=VERSION. The error says what is wrong with it.
func ParseTarget(text string) (Target, error) {
	consumer, version, ok := strings.Cut(text, "=")
	known := steps()[consumer]
	if !ok || known == nil {
		return Target{}, fmt.Errorf("target %q: expected one of %s, = and a version, such as podman=4.3.1", text, strings.Join(Consumers(), ", "))
	}
	var number [3]int
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	for i := range min(len(parts), 3) {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			return Target{}, fmt.Errorf("target %q: %q is not a version, such as 4.3.1", text, version)
		}
		number[i] = n
	}
	t := Target{Consumer: consumer, Release: version}
	for _, s := range known {
		if slices.Compare(number[:], s.from[:]) >= 0 {
			t.Newest = s.newest
		}
	}
	return t, nil
}

// olderThan compares two cdiVersions.
func olderThan(a, b string) bool {
	var x, y [3]int
	_, _ = fmt.Sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2])
	_, _ = fmt.Sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2])
	return slices.Compare(x[:], y[:]) < 0
}
