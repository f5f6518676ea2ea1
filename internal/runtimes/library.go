package runtimes

import (
	"cmp"

	"github.com/hyperaccel/lpuctl/internal/versions"
)

// CDILibrary is the release of the CDI library that a release of a consumer was built
// with, as far as it matters how it reads a spec: libraries up to 1.1.0 read alike but
// for the cdiVersions that they know, and are named by the highest of these. It is "" for
// a release without CDI, and for what [MaxCDI] does not know.
func CDILibrary(consumer, version string) string {
	newest, err := MaxCDI(consumer, version)
	if err != nil {
		return ""
	}
	return cmp.Or(latest(versions.Parse(version), libraries()[consumer]), newest)
}

// libraries are the releases from which on a consumer was built with a library that reads
// specs otherwise than those before it, although it knows the same cdiVersions. They are
// from the go.mod of each release.
func libraries() map[string][]step {
	return map[string][]step{"containerd": {{"2.4.0", "1.1.1"}}}
}
