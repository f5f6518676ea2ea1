// Package plan says what the scheduler of Kubernetes would do with a claim: it runs the
// scheduler's own allocator (k8s.io/dynamic-resource-allocation/structured) on resource
// slices, and says why a claim does not fit.
//
// It knows slices and claims, not the rest of a cluster: of the scheduler's other rules
// (labels of nodes, CPU, memory, taints of nodes) it looks at none but the name of a
// node.
package plan

import (
	"context"
	"slices"

	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/hyperaccel/lpuctl/internal/dra"
)

// Features are the feature gates of Kubernetes 1.37 as it comes, as far as the allocator
// knows them (internal/features/kube_features.go of k8s.io/kubernetes 1.37.1).
func Features() structured.Features {
	return structured.Features{
		AdminAccess:             true,
		ConsumableCapacity:      true,
		DeviceBindingAndStatus:  true,
		DeviceTaints:            true,
		FractionalCapacityRange: true,
		PartitionableDevices:    true,
		PrioritizedList:         true,
	}
}

// celFeatures are those of Features that CEL knows.
func celFeatures() cel.Features { return cel.Features{EnableConsumableCapacity: true} }

// driver is the one whose devices consist of LPUs. Devices of others are allocated too,
// and have no LPUs.
const driver = dra.DriverName

// Plan is what becomes of each wish, one after the other: what one gets is taken for
// those after it.
type Plan struct {
	Nodes  int    `json:"nodes"` // that have slices
	Wishes []Wish `json:"wishes"`
	// Warnings are what is odd about the slices and claims. They change the plan, as they
	// change what the scheduler does.
	Warnings Faults `json:"-"`
}

// Fits reports whether every wish can be met.
func (p *Plan) Fits() bool {
	return !slices.ContainsFunc(p.Wishes, func(w Wish) bool { return !w.Fits })
}

// Wish is a pod with all its claims, or a claim or template by itself, and what becomes
// of it.
type Wish struct {
	Kind      string `json:"kind"` // Pod, ResourceClaim or ResourceClaimTemplate
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Fits      bool   `json:"fits"`
	// Before is true if every claim of it had been allocated before.
	Before bool   `json:"before,omitempty"`
	Node   string `json:"node,omitempty"` // where it is put in this plan
	// Others are other nodes that it fits on: the scheduler's scores decide.
	Others  []string `json:"others,omitempty"`
	Devices []Device `json:"devices,omitempty"` // that it gets on Node
	Left    *Left    `json:"left,omitempty"`    // what stays free on Node
	// Refused is a node each, those with most free LPUs first; if it fits nowhere.
	Refused []Refusal `json:"refused,omitempty"`
	Notes   []string  `json:"notes,omitempty"` // what was not looked at, or was changed
	// Rings are of Node; if it fits nowhere, of the first node of Refused.
	Rings []Ring `json:"rings,omitempty"`
}

// Device is one that a request gets.
type Device struct {
	Claim   string `json:"claim"`
	Request string `json:"request"` // "request/alternative" where the request has several
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// LPUs are PCI addresses, in the order of the ring; of another driver's device: none.
	LPUs []string `json:"lpus"`
	// Indices are the same, as lpuctl list has them; absent where the slices do not tell.
	Indices []int `json:"indices,omitempty"`
}

// Left is what stays free of the LPUs of a node.
type Left struct {
	LPUs    int         `json:"lpus"`    // free ones, connected or not
	Longest int         `json:"longest"` // how many the largest device has that can still be given
	Sizes   []Placeable `json:"sizes"`   // in ascending order
}

// Placeable is how many devices of a size could be given next. They may overlap, so not
// all of them can be given.
type Placeable struct {
	Size    int `json:"size"`
	Devices int `json:"devices"`
}

// Refusal says why a wish does not fit on a node.
type Refusal struct {
	Node     string       `json:"node"`
	Reason   string       `json:"reason"` // in one line
	FreeLPUs int          `json:"freeLPUs"`
	Requests []RequestWhy `json:"requests"` // each alternative of a request stands by itself
}

// RequestWhy counts the devices of a node for one request. A device is counted once: as
// tainted, else as overlapping, else as free.
type RequestWhy struct {
	Claim       string     `json:"claim"`
	Request     string     `json:"request"`
	Class       string     `json:"class"`
	Count       int64      `json:"count"` // how many devices it asks for; 0: all
	Match       int        `json:"match"` // devices that class and selectors let through
	Tainted     int        `json:"tainted"`
	Taints      []TaintWhy `json:"taints"`
	Overlapping int        `json:"overlapping"` // devices with an LPU that a claim has
	Holders     []Holder   `json:"holders"`
	Free        int        `json:"free"`
	// LPUs is how many the request needs, by the smallest device that matches.
	LPUs int `json:"lpus"`
	// FreeLPUs are of those that matching devices consist of; PCI addresses.
	FreeLPUs []string `json:"freeLPUs"`
	Reason   string   `json:"reason"` // in one line
}

// TaintWhy is a taint that the request does not tolerate.
type TaintWhy struct {
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"`
	Effect  string `json:"effect"`
	Devices int    `json:"devices"` // that match and have it
}

// Holder is a claim that has LPUs, or a whole device, which matching devices would need.
type Holder struct {
	Claim string   `json:"claim"` // namespace/name
	LPUs  []string `json:"lpus"`
}

// Plan carries the wishes out, one after the other. An error of type [Faults] is what the
// API server would refuse, or what the scheduler would refuse a whole pod for on any
// node; every other one is that of the context.
func (in *Input) Plan(ctx context.Context) (*Plan, error) {
	c := newCluster(in)
	wishes, faults := c.wishes()
	if len(faults) > 0 {
		return nil, faults
	}
	p := &Plan{Nodes: len(c.nodes), Wishes: []Wish{}, Warnings: c.warnings()}
	for _, w := range wishes {
		result, err := c.place(ctx, w)
		if err != nil {
			return nil, err
		}
		p.Wishes = append(p.Wishes, *result)
	}
	return p, nil
}
