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
	claims                []*wanted
	notes                 []string
	faults                Faults
}

func newWish(kind string, o metav1.Object, from source, claims ...*wanted) *wish {
	return &wish{
		kind: kind, namespace: cmp.Or(o.GetNamespace(), metav1.NamespaceDefault), name: o.GetName(), from: from, claims: claims,
	}
}

// fault notes a fault at a path of what was written.
func (w *wish) fault(path, remedy, format string, args ...any) {
	w.faults = append(w.faults, w.from.fault(path, remedy, format, args...))
}

// wanted is a claim of a wish. It may have been allocated.
type wanted struct {
	*resourceapi.ResourceClaim
	from source
	// Of the claim's spec in from; "" if it was made of something else, such as a resource
	// of a container.
	path string
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

// wishes are the wishes in the order of the files: pods, and claims and templates that no
// pod refers to.
func (c *cluster) wishes() (wishes []*wish, faults Faults) {
	for _, claim := range c.in.claims {
		if c.claims[nameOf(claim.it)] == nil { // one that the cluster has already is taken as it is there
			c.claims[nameOf(claim.it)] = claim.it
		}
	}
	referred, seen := map[string]bool{}, map[string]bool{}
	for _, pod := range c.in.pods {
		for _, ref := range pod.it.Spec.ResourceClaims {
			referred[reference(pod.it, &ref)] = true
		}
	}
	for _, class := range slices.Sorted(maps.Keys(c.classes)) {
		faults = append(faults, c.checkClass(class)...)
	}
	for _, o := range c.in.order {
		var w *wish
		switch o := o.(type) {
		case object[corev1.Pod]:
			w = c.ofPod(o)
		case object[resourceapi.ResourceClaim]:
			w = newWish(claimKind, o.it, o.source, &wanted{c.claims[nameOf(o.it)], o.source, "spec"})
		case object[resourceapi.ResourceClaimTemplate]:
			w = newWish(templateKind, o.it, o.source, ofTemplate(o, o.it.Name))
		}
		key := w.kind + " " + w.namespace + "/" + w.name
		if seen[key] {
			faults = append(faults, w.from.fault("metadata.name", "give it another name", "there are two of %s", key))
		}
		seen[key] = true
		if referred[key] {
			continue
		}
		faults = append(faults, w.faults...)
		for _, claim := range w.claims {
			faults = append(faults, c.checkClaim(claim)...)
		}
		wishes = append(wishes, w)
	}
	return wishes, faults
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

func ofTemplate(template object[resourceapi.ResourceClaimTemplate], name string) *wanted {
	claim := &resourceapi.ResourceClaim{Spec: template.it.Spec.Spec}
	claim.Namespace, claim.Name = template.it.Namespace, name
	return &wanted{claim, template.source, "spec.spec"}
}

// ofPod is a pod with its claims, those made of its templates, and one for its extended
// resources.
func (c *cluster) ofPod(pod object[corev1.Pod]) *wish {
	w := newWish(podKind, pod.it, pod.source)
	w.node = pod.it.Spec.NodeName
	for i := range pod.it.Spec.ResourceClaims {
		c.addReference(w, pod, i)
	}
	checkUses(w, pod.it)
	containers := c.rewritten(w, pod.it)
	if requests := c.extendedRequests(containers, len(pod.it.Spec.InitContainers)); len(requests) > 0 {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.it.Namespace, Name: pod.it.Name + "-extended-resources"}}
		claim.Spec.Devices.Requests = requests
		w.claims = append(w.claims, &wanted{claim, pod.below("spec.containers"), ""})
	}
	if len(w.claims) == 0 && len(w.faults) == 0 {
		w.fault("spec", "give it spec.resourceClaims, or "+extendedLPU+" among resources.limits of a container",
			"Pod %q asks for no device", w.name)
	}
	if spec := pod.it.Spec; len(spec.NodeSelector) > 0 || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 {
		w.notes = append(w.notes,
			"nodeSelector, affinity and topologySpreadConstraints were not looked at: slices say nothing of the labels of nodes")
	}
	return w
}

// addReference adds the claim that a pod refers to.
func (c *cluster) addReference(w *wish, pod object[corev1.Pod], i int) {
	ref := &pod.it.Spec.ResourceClaims[i]
	path := "spec.resourceClaims[" + strconv.Itoa(i) + "]"
	is := reference(pod.it, ref)
	if is == "" || ref.ResourceClaimName != nil && ref.ResourceClaimTemplateName != nil {
		w.fault(path, "write one of them",
			"Pod %q, claim %q: expected one of resourceClaimName and resourceClaimTemplateName", w.name, ref.Name)
		return
	}
	for _, template := range c.in.templates {
		if templateKind+" "+nameOf(template.it) == is {
			w.claims = append(w.claims, ofTemplate(template, w.name+"-"+ref.Name))
			return
		}
	}
	name, isClaim := strings.CutPrefix(is, claimKind+" ")
	claim := &wanted{c.claims[name], pod.below(path), ""}
	if !isClaim || claim.ResourceClaim == nil {
		w.fault(path, "add it to the file; of the cluster: --claims with kubectl get resourceclaims -A -o json",
			"Pod %q refers to %s, which is not here", w.name, is)
		return
	}
	for _, written := range c.in.claims {
		if nameOf(written.it) == name {
			claim.from, claim.path = written.source, "spec"
			break
		}
	}
	w.claims = append(w.claims, claim)
}

// checkUses checks that containers name claims of the pod.
func checkUses(w *wish, pod *corev1.Pod) {
	check := func(list string, containers []corev1.Container) {
		for i := range containers {
			for j, use := range containers[i].Resources.Claims {
				has := slices.ContainsFunc(pod.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return r.Name == use.Name })
				if !has {
					w.fault(fmt.Sprintf("spec.%s[%d].resources.claims[%d]", list, i, j), "name one of spec.resourceClaims",
						"Pod %q, container %q uses the claim %q, which the pod does not have", w.name, containers[i].Name, use.Name)
				}
			}
		}
	}
	check("initContainers", pod.Spec.InitContainers)
	check("containers", pod.Spec.Containers)
}

// rewritten are the containers of a pod, those that run at first in front, with amounts
// of the extended resource of single LPUs written as one of a size: hyperaccel.ai/lpu: 4
// becomes hyperaccel.ai/lpu-4: 1, as the chart's MutatingAdmissionPolicy does. Four
// single LPUs would not be connected.
func (c *cluster) rewritten(w *wish, pod *corev1.Pod) (containers []corev1.Container) {
	list := func(name string, of []corev1.Container) {
		for i := range of {
			container := *of[i].DeepCopy()
			amounts := corev1.ResourceList{}
			// The API server takes limits for requests that are not given.
			maps.Copy(amounts, container.Resources.Limits)
			maps.Copy(amounts, container.Resources.Requests)
			path := fmt.Sprintf("spec.%s[%d].resources", name, i)
			for resource, quantity := range amounts {
				if strings.HasPrefix(string(resource), extendedLPU) && c.extended(resource) == nil {
					w.fault(path, c.similarResource(), "Pod %q, container %q: no DeviceClass offers %s", w.name, container.Name, resource)
				}
				n := quantity.Value()
				if resource != extendedLPU || n < 2 {
					continue
				}
				sized := corev1.ResourceName(extendedLPU + "-" + strconv.FormatInt(n, 10))
				if c.extended(sized) == nil {
					w.fault(path, c.similarResource(),
						"Pod %q, container %q: no DeviceClass offers %s, and %d single LPUs would not be connected", w.name, container.Name, sized, n)
					continue
				}
				if _, both := amounts[sized]; both {
					w.fault(path, "ask for one of them",
						"Pod %q, container %q asks for %s and for %s: the chart's policy turns neither", w.name, container.Name, resource, sized)
					continue
				}
				one := quantity.DeepCopy()
				one.Set(1)
				delete(amounts, resource)
				amounts[sized] = one
				w.notes = append(w.notes, fmt.Sprintf("%s: %d of container %s is %s: 1, as the chart's policy makes it",
					extendedLPU, n, container.Name, sized))
			}
			container.Resources.Requests = amounts
			containers = append(containers, container)
		}
	}
	list("initContainers", pod.Spec.InitContainers)
	list("containers", pod.Spec.Containers)
	return containers
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

// extendedRequests are the requests that the scheduler makes of extended resources: one a
// container and resource (extendeddynamicresources.go of kube-scheduler). A container
// that only runs at first, of which there are initial at the front, uses what those after
// it have; of what it needs beyond that the largest is added.
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
