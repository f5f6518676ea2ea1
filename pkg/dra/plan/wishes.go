package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wish is what is to be placed on one node.
type wish struct {
	kind, namespace, name string
	from                  source
	node                  string // the only one, if it names one
	claims                []wanted
	notes                 []string
}

// wanted is a claim of a wish. It may have been allocated.
type wanted struct {
	*resourceapi.ResourceClaim
	from source
	path string // of the claim's spec in from; "" if it was made of something else, such as a resource of a container
}

// fault is a fault at a path of the claim's devices.
func (w *wanted) fault(path, remedy, format string, args ...any) Fault {
	if w.path == "" {
		path = ""
	} else {
		path = join(w.path+".devices", path)
	}
	return w.from.fault(path, remedy, "%s %s", nameOf(w), fmt.Sprintf(format, args...))
}

// wishes are the wishes in the order of the files: pods, and claims and templates that no pod refers to.
func (c *cluster) wishes() (wishes []wish, faults Faults) {
	for _, claim := range c.in.claims {
		if c.claims[nameOf(claim.it)] == nil { // one that the cluster has already is taken as it is there
			c.claims[nameOf(claim.it)] = claim.it
		}
	}
	referred, seen := map[string]bool{}, map[string]bool{}
	for _, o := range c.in.order {
		if o.kind == podKind {
			pod := c.in.pods[o.index]
			for _, ref := range pod.it.Spec.ResourceClaims {
				referred[reference(pod.it, &ref)] = true
			}
		}
	}
	for _, class := range slices.Sorted(maps.Keys(c.classes)) {
		faults = append(faults, c.checkClass(class)...)
	}
	for _, o := range c.in.order {
		var w wish
		var more Faults
		switch o.kind {
		case podKind:
			w, more = c.ofPod(c.in.pods[o.index])
		case claimKind:
			claim := c.in.claims[o.index]
			w = wish{kind: o.kind, namespace: claim.it.Namespace, name: claim.it.Name, from: claim.source}
			w.claims = []wanted{{c.claims[nameOf(claim.it)], claim.source, "spec"}}
		case templateKind:
			template := c.in.templates[o.index]
			w = wish{kind: o.kind, namespace: template.it.Namespace, name: template.it.Name, from: template.source}
			w.claims = []wanted{c.ofTemplate(template, template.it.Name)}
		}
		faults = append(faults, twice(seen, &w)...)
		if referred[o.kind+" "+cmp.Or(w.namespace, metav1.NamespaceDefault)+"/"+w.name] {
			continue
		}
		w.namespace = cmp.Or(w.namespace, metav1.NamespaceDefault)
		faults = append(faults, more...)
		for i := range w.claims {
			faults = append(faults, c.checkClaim(&w.claims[i])...)
		}
		wishes = append(wishes, w)
	}
	return wishes, faults
}

// twice is a fault if a wish has the kind and name of one that was seen before.
func twice(seen map[string]bool, w *wish) Faults {
	key := w.kind + " " + cmp.Or(w.namespace, metav1.NamespaceDefault) + "/" + w.name
	if seen[key] {
		return Faults{w.from.fault("metadata.name", "give it another name", "there are two of %s", key)}
	}
	seen[key] = true
	return nil
}

// reference is what a pod's claim refers to: kind, namespace and name.
func reference(pod *corev1.Pod, ref *corev1.PodResourceClaim) string {
	namespace := cmp.Or(pod.Namespace, metav1.NamespaceDefault) + "/"
	switch {
	case ref.ResourceClaimName != nil:
		return claimKind + " " + namespace + *ref.ResourceClaimName
	case ref.ResourceClaimTemplateName != nil:
		return templateKind + " " + namespace + *ref.ResourceClaimTemplateName
	}
	return ""
}

func (c *cluster) ofTemplate(template object[resourceapi.ResourceClaimTemplate], name string) wanted {
	claim := &resourceapi.ResourceClaim{Spec: template.it.Spec.Spec}
	claim.Namespace, claim.Name = template.it.Namespace, name
	return wanted{claim, template.source, "spec.spec"}
}

// ofPod is a pod with its claims, those made of its templates, and one for its extended resources.
func (c *cluster) ofPod(pod object[corev1.Pod]) (w wish, faults Faults) {
	w = wish{kind: podKind, namespace: pod.it.Namespace, name: pod.it.Name, from: pod.source, node: pod.it.Spec.NodeName}
	for i := range pod.it.Spec.ResourceClaims {
		claim, fault := c.ofReference(pod, i)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		w.claims = append(w.claims, *claim)
	}
	faults = append(faults, checkUses(pod)...)
	containers, notes, more := c.rewritten(pod)
	w.notes, faults = notes, append(faults, more...)
	if requests := c.extendedRequests(containers, len(pod.it.Spec.InitContainers)); len(requests) > 0 {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.it.Namespace, Name: pod.it.Name + "-extended-resources"}}
		claim.Spec.Devices.Requests = requests
		w.claims = append(w.claims, wanted{claim, pod.below("spec.containers"), ""})
	}
	if len(w.claims) == 0 && len(faults) == 0 {
		faults = append(faults, pod.fault("spec", "give it spec.resourceClaims, or "+extendedLPU+" among resources.limits of a container",
			"Pod %q asks for no device", pod.it.Name))
	}
	if spec := pod.it.Spec; len(spec.NodeSelector) > 0 || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 {
		w.notes = append(w.notes,
			"nodeSelector, affinity and topologySpreadConstraints were not looked at: slices say nothing of the labels of nodes")
	}
	return w, faults
}

func (c *cluster) ofReference(pod object[corev1.Pod], i int) (*wanted, *Fault) {
	ref := &pod.it.Spec.ResourceClaims[i]
	path := "spec.resourceClaims[" + strconv.Itoa(i) + "]"
	is := reference(pod.it, ref)
	missing := func(what string) *Fault {
		f := pod.fault(path, "add it to the file; of the cluster: --claims with kubectl get resourceclaims -A -o json",
			"Pod %q refers to %s, which is not here", pod.it.Name, what)
		return &f
	}
	switch {
	case ref.ResourceClaimName != nil && ref.ResourceClaimTemplateName != nil, is == "":
		f := pod.fault(path, "write one of them",
			"Pod %q, claim %q: expected one of resourceClaimName and resourceClaimTemplateName", pod.it.Name, ref.Name)
		return nil, &f
	case ref.ResourceClaimName != nil:
		name := strings.TrimPrefix(is, claimKind+" ")
		for _, claim := range c.in.claims {
			if nameOf(claim.it) == name {
				return &wanted{c.claims[name], claim.source, "spec"}, nil
			}
		}
		if claim := c.claims[name]; claim != nil {
			return &wanted{claim, pod.below(path), ""}, nil
		}
		return nil, missing(is)
	}
	for _, template := range c.in.templates {
		if templateKind+" "+nameOf(template.it) == is {
			claim := c.ofTemplate(template, pod.it.Name+"-"+ref.Name)
			return &claim, nil
		}
	}
	return nil, missing(is)
}

// checkUses checks that containers name claims of the pod.
func checkUses(pod object[corev1.Pod]) (faults Faults) {
	check := func(list string, containers []corev1.Container) {
		for i := range containers {
			for j, use := range containers[i].Resources.Claims {
				has := slices.ContainsFunc(pod.it.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return r.Name == use.Name })
				if !has {
					path := fmt.Sprintf("spec.%s[%d].resources.claims[%d]", list, i, j)
					faults = append(faults, pod.fault(path, "name one of spec.resourceClaims",
						"Pod %q, container %q uses the claim %q, which the pod does not have", pod.it.Name, containers[i].Name, use.Name))
				}
			}
		}
	}
	check("initContainers", pod.it.Spec.InitContainers)
	check("containers", pod.it.Spec.Containers)
	return faults
}

// rewritten are the containers of a pod, those that run at first in front, with amounts of the extended resource of single LPUs written
// as one of a size: hyperaccel.ai/lpu: 4 becomes hyperaccel.ai/lpu-4: 1, as the chart's MutatingAdmissionPolicy does. Four single
// LPUs would not be connected.
func (c *cluster) rewritten(pod object[corev1.Pod]) (containers []corev1.Container, notes []string, faults Faults) {
	list := func(name string, of []corev1.Container) {
		for i := range of {
			container := *of[i].DeepCopy()
			amounts := corev1.ResourceList{}
			maps.Copy(amounts, container.Resources.Limits) // the API server takes limits for requests that are not given
			maps.Copy(amounts, container.Resources.Requests)
			path := fmt.Sprintf("spec.%s[%d].resources", name, i)
			for resource, quantity := range amounts {
				if strings.HasPrefix(string(resource), extendedLPU) && c.extended(resource) == nil {
					faults = append(faults, pod.fault(path, c.similarResource(),
						"Pod %q, container %q: no DeviceClass offers %s", pod.it.Name, container.Name, resource))
				}
				n := quantity.Value()
				if resource != extendedLPU || n < 2 {
					continue
				}
				sized := corev1.ResourceName(extendedLPU + "-" + strconv.FormatInt(n, 10))
				if c.extended(sized) == nil {
					faults = append(faults, pod.fault(path, c.similarResource(),
						"Pod %q, container %q: no DeviceClass offers %s, and %d single LPUs would not be connected", pod.it.Name, container.Name, sized, n))
					continue
				}
				if _, both := amounts[sized]; both {
					faults = append(faults, pod.fault(path, "ask for one of them",
						"Pod %q, container %q asks for %s and for %s: the chart's policy turns neither", pod.it.Name, container.Name, resource, sized))
					continue
				}
				one := quantity.DeepCopy()
				one.Set(1)
				delete(amounts, resource)
				amounts[sized] = one
				notes = append(notes, fmt.Sprintf("%s: %d of container %s is %s: 1, as the chart's policy makes it",
					extendedLPU, n, container.Name, sized))
			}
			container.Resources.Requests = amounts
			containers = append(containers, container)
		}
	}
	list("initContainers", pod.it.Spec.InitContainers)
	list("containers", pod.it.Spec.Containers)
	return containers, notes, faults
}

// similarResource says which extended resources there are.
func (c *cluster) similarResource() string {
	var names []string
	all, _ := c.List()
	for _, class := range all {
		if class.Spec.ExtendedResourceName != nil {
			names = append(names, *class.Spec.ExtendedResourceName)
		}
	}
	if len(names) == 0 {
		return "no class has an extendedResourceName: install the chart with dra.extendedResources, or write a claim"
	}
	return "take one of " + strings.Join(names, ", ") + ", or write a claim"
}

// extendedRequests are the requests that the scheduler makes of extended resources: one a container and resource
// (extendeddynamicresources.go of kube-scheduler). A container that only runs at first, of which there are initial at the front, uses what
// those after it have; of what it needs beyond that the largest is added.
func (c *cluster) extendedRequests(containers []corev1.Container, initial int) (requests []resourceapi.DeviceRequest) {
	amount := func(i int, name corev1.ResourceName) int64 {
		quantity := containers[i].Resources.Requests[name]
		return quantity.Value()
	}
	short := func(i int) bool {
		policy := containers[i].RestartPolicy
		return i < initial && (policy == nil || *policy != corev1.ContainerRestartPolicyAlways)
	}
	for _, name := range resourcesOf(containers) {
		class := c.extended(name)
		if class == nil {
			continue
		}
		add := func(i int, count int64) {
			of := slices.Index(resourcesOf(containers[i:i+1]), name)
			requests = append(requests, resourceapi.DeviceRequest{
				Name: fmt.Sprintf("container-%d-request-%d", i, of),
				Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
				},
			})
		}
		var most int64
		whose, after := -1, int64(0)
		for i := range slices.Backward(containers) {
			switch n := amount(i, name); {
			case !short(i):
				after += n
				if n > 0 {
					add(i, n)
				}
			case n-after >= most && n > after: // the first of equal ones
				most, whose = n-after, i
			}
		}
		if whose >= 0 {
			add(whose, most)
		}
	}
	slices.SortFunc(requests, func(a, b resourceapi.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return requests
}

// resourcesOf are the names of resources that containers request, sorted.
func resourcesOf(containers []corev1.Container) []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	for i := range containers {
		for name := range containers[i].Resources.Requests {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
