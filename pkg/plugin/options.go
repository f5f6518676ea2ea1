package plugin

import (
	"fmt"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/node"
)

// DefaultResource is the extended resource that pods ask for.
const DefaultResource = "hyperaccel.ai/lpu"

// Options say how LPUs are handed out.
type Options struct {
	Strategy Strategy
	Spec     node.Spec // must define a device before its name is handed out
	// RequireConnected refuses a pod whose LPUs would not be connected, instead of giving
	// it others.
	RequireConnected bool
	NUMA             NUMA
	// PreStart makes the kubelet ask before each start of a container, restarts included,
	// whether its LPUs are still usable.
	PreStart bool
	OnCDIOff node.OnCDIOff // with the strategy CDI
}

// spec is the CDI spec that must define an LPU before it is handed out.
func (o *Options) spec() node.Spec {
	if o.Strategy != CDI {
		return node.Spec{}
	}
	return o.Spec
}

// Strategy is how a container gets its LPUs.
type Strategy string

// The strategies.
const (
	CDI         Strategy = "cdi-cri"      // names of CDI devices, for the runtime to resolve
	DeviceSpecs Strategy = "device-specs" // nodes, mounts and variables, for runtimes without CDI
)

// strategy is how a container gets its LPUs, by what is known of the runtime. It is one
// or the other: a runtime with CDI on that got both would put each node into the
// container twice.
func (o *Options) strategy(r node.Runtime) Strategy {
	if o.OnCDIOff == node.SpecsOnCDIOff && r.CDI == node.CDIOff {
		return DeviceSpecs
	}
	return o.Strategy
}

// NUMA says whether the kubelet gets the NUMA node of each LPU. If it does, and its
// Topology Manager has a policy, it narrows down the free LPUs by NUMA node before it
// asks for a preferred allocation, or does not ask at all.
type NUMA string

// The settings.
const (
	NUMAOff  NUMA = "off"
	NUMAOn   NUMA = "on"
	NUMAAuto NUMA = "auto" // on where no ring crosses NUMA nodes
)

// Validate returns an error for an unknown strategy.
func (s Strategy) Validate() error {
	if s != CDI && s != DeviceSpecs {
		return fmt.Errorf("device list strategy %q: expected %s or %s", s, CDI, DeviceSpecs)
	}
	return nil
}

// Validate returns an error for an unknown setting.
func (n NUMA) Validate() error {
	if n != NUMAOff && n != NUMAOn && n != NUMAAuto {
		return fmt.Errorf("numa %q: expected %s, %s or %s", n, NUMAOff, NUMAOn, NUMAAuto)
	}
	return nil
}

var (
	extendedResource = lazy.Regexp(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/` +
		`[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	nativeResource = lazy.Regexp(`(^|\.)kubernetes\.io/|^requests\.`)
)

// ValidateResource checks the name of an extended resource as the kubelet does:
// DOMAIN/NAME, each of letters, digits, dots, hyphens (and underscores in NAME), the
// domain not one of Kubernetes' own (k8s.io/kubernetes pkg/apis/core/v1/helper,
// IsExtendedResourceName).
func ValidateResource(name string) error {
	if !extendedResource().MatchString(name) || nativeResource().MatchString(name) || len(name) > 253 {
		return fmt.Errorf("%q is not the name of an extended resource", name)
	}
	return nil
}
