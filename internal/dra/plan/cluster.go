package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// cluster is what there is, and what has been given away so far.
type cluster struct {
	in      *Input
	classes map[string]object[resourceapi.DeviceClass]
	slices  []*resourceapi.ResourceSlice
	nodes   []string // that have slices of their own, sorted
	claims  map[string]*resourceapi.ResourceClaim
	state   structured.AllocatedState
	holders map[structured.DeviceID][]string // the claims that have a device
	cel     *cel.Cache
}

func newCluster(in *Input) *cluster {
	c := &cluster{
		in:      in,
		classes: map[string]object[resourceapi.DeviceClass]{},
		claims:  map[string]*resourceapi.ResourceClaim{},
		holders: map[structured.DeviceID][]string{},
		cel:     cel.NewCache(100, celFeatures()),
		state: structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		},
	}
	// A dump that has classes has all of them.
	if !slices.ContainsFunc(in.classes, func(class object[resourceapi.DeviceClass]) bool { return !class.wished }) {
		for _, class := range Classes() {
			c.classes[class.Name] = object[resourceapi.DeviceClass]{it: class, source: source{file: "built-in class " + class.Name}}
		}
	}
	for _, class := range in.classes {
		if class.wished || c.classes[class.it.Name].it == nil {
			c.classes[class.it.Name] = class
		}
	}
	nodes := map[string]bool{}
	for _, s := range in.slices {
		c.slices = append(c.slices, c.tainted(s.it))
		if s.it.Spec.NodeName != nil {
			nodes[*s.it.Spec.NodeName] = true
		}
	}
	c.nodes = slices.Sorted(maps.Keys(nodes))
	for _, claim := range in.known {
		c.claims[nameOf(claim.it)] = claim.it
		c.take(claim.it)
	}
	return c
}

func nameOf(o metav1.Object) string {
	return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) + "/" + o.GetName()
}

// tainted is a slice with the taints of DeviceTaintRules on its devices.
func (c *cluster) tainted(s *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	for _, rule := range c.in.rules {
		of := rule.it.Spec.DeviceSelector
		if of == nil || of.Driver != nil && *of.Driver != s.Spec.Driver || of.Pool != nil && *of.Pool != s.Spec.Pool.Name {
			continue
		}
		s = s.DeepCopy()
		for i := range s.Spec.Devices {
			if d := &s.Spec.Devices[i]; of.Device == nil || *of.Device == d.Name {
				d.Taints = append(d.Taints, rule.it.Spec.Taint)
			}
		}
	}
	return s
}

// take charges what a claim has been given. Access for administration takes nothing.
func (c *cluster) take(claim *resourceapi.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		c.holders[id] = append(c.holders[id], nameOf(claim))
		if r.ShareID == nil {
			c.state.AllocatedDevices.Insert(id)
			continue
		}
		c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}

// Get is the class of a name: a cluster is the allocator's lister of classes.
func (c *cluster) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := c.classes[name]; class.it != nil {
		return class.it, nil
	}
	return nil, errors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// List is every class.
func (c *cluster) List() (all []*resourceapi.DeviceClass, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.classes)) {
		all = append(all, c.classes[name].it)
	}
	return all, nil
}

// similar says which classes there are, for a user who named one that is not.
func (c *cluster) similar(name string) string {
	names := slices.Sorted(maps.Keys(c.classes))
	classes := strings.Join(names, ", ")
	if word := nearest.Word(name, names); word != "" {
		return "did you mean " + word + "? There are " + classes + ", and those that the file adds"
	}
	return "add the class to the file, or take one of " + classes
}

// extended is the class that offers an extended resource. Of several it is the newest,
// then the first by name, as the scheduler has it (extendedresourcecache of
// k8s.io/dynamic-resource-allocation).
func (c *cluster) extended(name corev1.ResourceName) *resourceapi.DeviceClass {
	if class, ok := strings.CutPrefix(string(name), resourceapi.ResourceDeviceClassPrefix); ok {
		return c.classes[class].it
	}
	var best *resourceapi.DeviceClass
	all, _ := c.List()
	for _, class := range all {
		offered := class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == string(name)
		if offered && (best == nil || best.CreationTimestamp.Before(&class.CreationTimestamp)) {
			best = class
		}
	}
	return best
}

// extendedLPU is the name of the extended resource of single LPUs; that of N connected
// ones ends in -N.
const extendedLPU = "hyperaccel.ai/lpu"

// Classes are the device classes of the Helm chart in mode dra, with the names of their
// extended resources: one for each of the default sizes.
func Classes() (classes []*resourceapi.DeviceClass) {
	for _, size := range dra.DefaultSizes() {
		suffix := ""
		if size > 1 {
			suffix = "-" + strconv.Itoa(size)
		}
		// The size first, since it rules most devices out. A device of another driver has
		// none, which is an error; an error and false are false (CEL's && looks at both
		// sides).
		selector := "device.attributes['" + driver + "'].size == " + strconv.Itoa(size) + " && device.driver == '" + driver + "'"
		classes = append(classes, &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: "lpu" + suffix},
			Spec: resourceapi.DeviceClassSpec{
				ExtendedResourceName: new(extendedLPU + suffix),
				Selectors:            []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}},
			},
		})
	}
	return classes
}
