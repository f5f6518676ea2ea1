package plan

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// Input is what a plan is made of: wishes, and what there is. The zero value is empty.
type Input struct {
	pods      []object[corev1.Pod]
	claims    []object[resourceapi.ResourceClaim]         // wishes
	templates []object[resourceapi.ResourceClaimTemplate] // wishes, or what pods refer to
	classes   []object[resourceapi.DeviceClass]

	slices []object[resourceapi.ResourceSlice]
	rules  []object[resourceapi.DeviceTaintRule]
	known  []object[resourceapi.ResourceClaim] // claims of the cluster
	// What dumps have brought: the same dump may be given twice.
	seen  map[string]bool
	order []any // the objects of pods, claims and templates, in the order of the files
}

// object is an object of Kubernetes and where it stands.
type object[T any] struct {
	it *T
	source
	wished bool // by a person: it is checked, as the API server would
}

// The kinds that are read, and the apiVersion of each.
const (
	podKind      = "Pod"
	claimKind    = "ResourceClaim"
	templateKind = "ResourceClaimTemplate"
	classKind    = "DeviceClass"
	sliceKind    = "ResourceSlice"
	ruleKind     = "DeviceTaintRule"
	listKind     = "List"
)

const resourceVersion = "resource.k8s.io/v1"

// header is what every object begins with.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// ReadWishes reads pods, claims, claim templates and device classes, as people write
// them: every unknown key is a fault.
func (in *Input) ReadWishes(file string, data []byte) Faults {
	before := len(in.order)
	faults := in.read(file, data, in.addWish)
	if len(faults) == 0 && len(in.order) == before {
		return Faults{{File: file, Message: "asks for nothing: it has no Pod, ResourceClaim or ResourceClaimTemplate",
			Remedy: "name a file with one of these"}}
	}
	return faults
}

// ReadCluster reads what kubectl get resourceslices,resourceclaims,deviceclasses -A -o
// json (or yaml) prints. Keys that are not known are passed over: a newer cluster may
// have them. It wants slices.
func (in *Input) ReadCluster(file string, data []byte) Faults {
	before := len(in.slices)
	faults := in.read(file, data, in.addDumped)
	if len(faults) == 0 && len(in.slices) == before {
		return Faults{{File: file, Message: "has no ResourceSlice", Remedy: dumpAgain}}
	}
	return faults
}

// ReadClaims is ReadCluster without the slices, which may be in the same file.
func (in *Input) ReadClaims(file string, data []byte) Faults {
	return in.read(file, data, func(d *document, h *header) Faults {
		if h.Kind == sliceKind {
			return nil
		}
		return in.addDumped(d, h)
	})
}

// HasClaims reports whether it is known of any claim what it has.
func (in *Input) HasClaims() bool { return len(in.known) > 0 }

// dumpAgain is how to get a dump.
const dumpAgain = "kubectl get resourceslices,resourceclaims,deviceclasses -A -o json"

func (in *Input) read(file string, data []byte, add func(*document, *header) Faults) (faults Faults) {
	docs, faults := documents(file, data)
	for i := range docs {
		faults = append(faults, in.readOne(&docs[i], add)...)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return faults
}

// readOne reads an object, or each of a list of objects.
func (in *Input) readOne(d *document, add func(*document, *header) Faults) (faults Faults) {
	var h header
	if faults := d.decode(&h, false); len(faults) > 0 {
		return faults
	}
	if h.Kind == "" || h.APIVersion == "" {
		return Faults{d.fault("", "give it both, as in: kubectl explain resourceclaim",
			"has no apiVersion and kind: not an object of Kubernetes")}
	}
	if h.Kind != listKind && (h.Items == nil || !strings.HasSuffix(h.Kind, listKind)) {
		return add(d, &h)
	}
	for i, item := range h.Items {
		at := document{d.below("items[" + strconv.Itoa(i) + "]"), item}
		var of header
		if more := at.decode(&of, false); len(more) > 0 {
			faults = append(faults, more...)
			continue
		}
		if of.Kind == "" { // ResourceSliceList and others leave it out
			of.Kind, of.APIVersion = strings.TrimSuffix(h.Kind, listKind), h.APIVersion
		}
		faults = append(faults, add(&at, &of)...)
	}
	return faults
}

// version checks the apiVersion of an object.
func version(d *document, h *header) Faults {
	want := resourceVersion
	if h.Kind == podKind {
		want = "v1"
	}
	if h.APIVersion == want {
		return nil
	}
	return Faults{d.fault("apiVersion", "write it for "+want+"; kubectl get prints it so on Kubernetes 1.34 and later",
		"%s of %s: only %s is known", h.Kind, h.APIVersion, want)}
}

func (in *Input) addWish(d *document, h *header) Faults {
	switch h.Kind {
	case podKind:
		return addInOrder(in, &in.pods, d, h)
	case claimKind:
		return addInOrder(in, &in.claims, d, h)
	case templateKind:
		return addInOrder(in, &in.templates, d, h)
	case classKind:
		return addWritten(&in.classes, d, h)
	case sliceKind, ruleKind:
		return Faults{d.fault("kind", "name its file with --slices", "%s: it describes a cluster, and asks for nothing", h.Kind)}
	}
	return Faults{d.fault("kind", unknownKind(h.Kind), "%s %q: only Pod, ResourceClaim, ResourceClaimTemplate and DeviceClass can be planned",
		h.Kind, h.Metadata.Name)}
}

// unknownKind says what to do about an object that cannot be planned.
func unknownKind(kind string) string {
	if slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"}, kind) {
		return "make a Pod of its template (spec.template), and leave the " + kind + " out"
	}
	if word := nearest.Word(kind, []string{podKind, claimKind, templateKind, classKind}); word != "" {
		return "did you mean " + word + "?"
	}
	return "leave it out"
}

// addInOrder adds a wish, and notes its place among all of them.
func addInOrder[T any](in *Input, to *[]object[T], d *document, h *header) Faults {
	faults := addWritten(to, d, h)
	if len(faults) == 0 {
		in.order = append(in.order, (*to)[len(*to)-1])
	}
	return faults
}

// addWritten adds an object that a person wrote.
func addWritten[T any](to *[]object[T], d *document, h *header) Faults {
	if faults := version(d, h); len(faults) > 0 {
		return faults
	}
	return add(to, d, true)
}

func (in *Input) addDumped(d *document, h *header) Faults {
	if !slices.Contains([]string{sliceKind, claimKind, classKind, ruleKind}, h.Kind) {
		return Faults{d.fault("kind", "leave it out: "+dumpAgain,
			"%s %q: a dump has ResourceSlice, ResourceClaim, DeviceClass and DeviceTaintRule", h.Kind, h.Metadata.Name)}
	}
	key := h.Kind + " " + h.Metadata.Namespace + "/" + h.Metadata.Name
	if in.seen[key] {
		return nil
	}
	if faults := version(d, h); len(faults) > 0 {
		return faults
	}
	if in.seen == nil {
		in.seen = map[string]bool{}
	}
	in.seen[key] = true
	switch h.Kind {
	case sliceKind:
		return add(&in.slices, d, false)
	case claimKind:
		return add(&in.known, d, false)
	case classKind:
		return add(&in.classes, d, false)
	}
	return add(&in.rules, d, false)
}

func add[T any](to *[]object[T], d *document, strict bool) Faults {
	into := object[T]{new(T), d.source, strict}
	faults := d.decode(into.it, strict)
	if len(faults) == 0 {
		*to = append(*to, into)
	}
	return faults
}

// AddSlices adds the slices that a node publishes, or would publish.
func (in *Input) AddSlices(node string, specs []resourceapi.ResourceSliceSpec) {
	for i := range specs {
		slice := &resourceapi.ResourceSlice{Spec: *specs[i].DeepCopy()}
		// The allocator takes the slices of a pool in the order of their names:
		// kubeletplugin names them by their position, too.
		slice.Name = node + "-" + strconv.Itoa(1000+i)
		in.slices = append(in.slices, object[resourceapi.ResourceSlice]{it: slice, source: source{file: "node " + node}})
	}
}

// AddUse says that a claim (namespace/name) has a device of a node.
func (in *Input) AddUse(claim, node, device string) {
	result := resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: node, Device: device}
	namespace, name, _ := strings.Cut(claim, "/")
	for _, c := range in.known {
		if had := c.it.Status.Allocation; c.it.Namespace == namespace && c.it.Name == name && had != nil {
			had.Devices.Results = append(had.Devices.Results, result)
			return
		}
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Status.Allocation = &resourceapi.AllocationResult{
		Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		NodeSelector: onNode(node),
	}
	in.known = append(in.known, object[resourceapi.ResourceClaim]{it: c, source: source{file: "node " + node}})
}

// onNode selects one node, by its name.
func onNode(name string) *corev1.NodeSelector {
	field := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{field}}}}
}
