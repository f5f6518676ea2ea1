package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// checkClass checks a class that a user wrote.
func (c *cluster) checkClass(name string) (faults Faults) {
	class := c.classes[name]
	for i := range class.it.Spec.Selectors {
		if problem, remedy := problemOf(&class.it.Spec.Selectors[i]); problem != "" {
			faults = append(faults, class.fault(fmt.Sprintf("spec.selectors[%d]", i), remedy, "DeviceClass %q: %s", class.it.Name, problem))
		}
	}
	for i, config := range class.it.Spec.Config {
		if config.Opaque == nil {
			continue
		}
		if err := parameters(config.Opaque); err != nil {
			faults = append(faults, class.fault(fmt.Sprintf("spec.config[%d].opaque", i), configRemedy,
				"DeviceClass %q: has a config that the driver refuses: %s", class.it.Name, err))
		}
	}
	return faults
}

// checker collects what is wrong with a claim.
type checker struct {
	*cluster
	*wanted
	names  []string // of requests, and of alternatives as request/alternative
	faults Faults
}

// add notes a fault at a path of the claim's devices.
func (k *checker) add(path, remedy, format string, args ...any) {
	k.faults = append(k.faults, k.fault(path, remedy, format, args...))
}

// checkClaim fills in what the API server fills in, and checks what it checks.
func (c *cluster) checkClaim(w *wanted) Faults {
	k := &checker{cluster: c, wanted: w}
	devices := &w.Spec.Devices
	if len(devices.Requests) == 0 && w.Status.Allocation == nil {
		return Faults{w.fault("", "add spec.devices.requests, as in docs/dra.md", "asks for no device")}
	}
	if n := len(devices.Requests); n > resourceapi.DeviceRequestsMaxSize {
		k.add("requests", "make several claims of it", "has %d requests: at most %d", n, resourceapi.DeviceRequestsMaxSize)
	}
	for i := range devices.Requests {
		r := &devices.Requests[i]
		path := fmt.Sprintf("requests[%d]", i)
		k.checkName(path, r.Name, r.Name)
		for j, s := range r.FirstAvailable {
			k.checkName(fmt.Sprintf("%s.firstAvailable[%d]", path, j), s.Name, r.Name+"/"+s.Name)
		}
		k.checkForm(path, r)
		for _, a := range alternatives(r, path) {
			k.checkAlternative(&a)
		}
	}
	k.checkReferences()
	return k.faults
}

// checkName checks a name of a request. full is with the request that it is an
// alternative of.
func (k *checker) checkName(path, name, full string) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		k.add(path, "give it a name of lower case letters, digits and hyphens", "has a request with the name %q", name)
	}
	if slices.Contains(k.names, full) {
		k.add(path, "give it another name", "has two requests with the name %q", full)
	}
	k.names = append(k.names, full)
}

func (k *checker) checkForm(path string, r *resourceapi.DeviceRequest) {
	switch {
	case (r.Exactly == nil) == (len(r.FirstAvailable) == 0):
		k.add(path, "write one of them", "request %q: expected one of exactly and firstAvailable", r.Name)
	case len(r.FirstAvailable) > resourceapi.FirstAvailableDeviceRequestMaxSize:
		k.add(path+".firstAvailable", "leave the last ones out", "request %q: has %d alternatives: at most %d",
			r.Name, len(r.FirstAvailable), resourceapi.FirstAvailableDeviceRequestMaxSize)
	}
}

// alternative is a request, or one alternative of a request, in one form for both.
type alternative struct {
	name, path  string
	class       string
	selectors   []resourceapi.DeviceSelector
	mode        *resourceapi.DeviceAllocationMode
	count       *int64
	tolerations []resourceapi.DeviceToleration
}

// alternatives are those of a request, which is one of itself if it has none.
func alternatives(r *resourceapi.DeviceRequest, path string) (all []alternative) {
	if e := r.Exactly; e != nil {
		all = append(all, alternative{r.Name, path + ".exactly", e.DeviceClassName, e.Selectors, &e.AllocationMode, &e.Count, e.Tolerations})
	}
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		all = append(all, alternative{r.Name + "/" + s.Name, fmt.Sprintf("%s.firstAvailable[%d]", path, i),
			s.DeviceClassName, s.Selectors, &s.AllocationMode, &s.Count, s.Tolerations})
	}
	return all
}

// alternatives are those of all requests of the claim.
func (w *wanted) alternatives() (all []alternative) {
	for i := range w.Spec.Devices.Requests {
		all = append(all, alternatives(&w.Spec.Devices.Requests[i], fmt.Sprintf("requests[%d]", i))...)
	}
	return all
}

func (k *checker) checkAlternative(a *alternative) {
	if *a.mode == "" {
		*a.mode = resourceapi.DeviceAllocationModeExactCount
	}
	if *a.mode == resourceapi.DeviceAllocationModeExactCount && *a.count == 0 {
		*a.count = 1
	}
	switch {
	case *a.mode != resourceapi.DeviceAllocationModeExactCount && *a.mode != resourceapi.DeviceAllocationModeAll:
		k.add(a.path+".allocationMode", "write ExactCount or All", "request %q: allocationMode %q", a.name, *a.mode)
	case *a.mode == resourceapi.DeviceAllocationModeAll && *a.count != 0:
		k.add(a.path+".count", "leave count out", "request %q: has a count, though it asks for all", a.name)
	case *a.mode == resourceapi.DeviceAllocationModeExactCount && *a.count < 0:
		k.add(a.path+".count", "write 1 or more", "request %q: count %d", a.name, *a.count)
	}
	for i := range a.selectors {
		if problem, remedy := problemOf(&a.selectors[i]); problem != "" {
			k.add(fmt.Sprintf("%s.selectors[%d]", a.path, i), remedy, "request %q: %s", a.name, problem)
		}
	}
	k.checkDriver(a)
}

// checkDriver checks that the class is there, and that slices of its driver are.
func (k *checker) checkDriver(a *alternative) {
	class, err := k.Get(a.class)
	switch {
	case a.class == "":
		k.add(a.path, "write deviceClassName: lpu", "request %q: has no deviceClassName", a.name)
		return
	case err != nil:
		k.add(a.path+".deviceClassName", k.similar(a.class), "request %q: there is no DeviceClass %q", a.name, a.class)
		return
	}
	here := map[string]bool{driver: true}
	for _, s := range k.slices {
		here[s.Spec.Driver] = true
	}
	for _, s := range slices.Concat(class.Spec.Selectors, a.selectors) {
		if s.CEL == nil {
			continue
		}
		if m := ofDriver().FindStringSubmatch(s.CEL.Expression); m != nil && !here[m[1]] {
			k.add(a.path, "give --slices with slices of "+m[1]+", or plan this claim without the request",
				"request %q: asks for a device of the driver %s; the slices here are of %s",
				a.name, m[1], strings.Join(slices.Sorted(maps.Keys(here)), ", "))
			return
		}
	}
}

// ofDriver finds the driver that a selector asks for.
var ofDriver = lazy.Regexp(`device\.driver\s*==\s*["']([^"']+)["']`)

// checkReferences checks that constraints and configs name requests of the claim.
func (k *checker) checkReferences() {
	check := func(path string, requests []string) {
		for _, name := range requests {
			if !slices.Contains(k.names, name) {
				k.add(path, "name one of "+strings.Join(k.names, ", "), "names the request %q, which it does not have", name)
			}
		}
	}
	for i, constraint := range k.Spec.Devices.Constraints {
		path := fmt.Sprintf("constraints[%d]", i)
		check(path, constraint.Requests)
		if (constraint.MatchAttribute == nil) == (constraint.DistinctAttribute == nil) {
			k.add(path, "write one of them", "has a constraint without one of matchAttribute and distinctAttribute")
		}
	}
	for i, config := range k.Spec.Devices.Config {
		path := fmt.Sprintf("config[%d]", i)
		check(path, config.Requests)
		if config.Opaque == nil || config.Opaque.Driver == "" {
			k.add(path, "write opaque, with driver and parameters", "has a config without a driver")
		} else if err := parameters(config.Opaque); err != nil {
			k.add(path+".opaque", configRemedy, "has a config that the driver refuses: %s", err)
		}
	}
}

// configRemedy is a config as the driver takes it.
const configRemedy = "write parameters: {apiVersion: " + statefile.APIVersion + ", kind: " + dra.ConfigKind + ", variables: list}"

// parameters checks what a config says to our driver, which would fail to prepare a claim
// that says anything else.
func parameters(o *resourceapi.OpaqueDeviceConfiguration) error {
	if o.Driver != driver {
		return nil
	}
	_, err := dra.ParseConfig(o.Parameters.Raw)
	return err
}

// problemOf is what the API server would say of a selector, "" if it takes it.
func problemOf(s *resourceapi.DeviceSelector) (problem, remedy string) {
	switch {
	case s.CEL == nil || s.CEL.Expression == "":
		return "a selector without cel.expression", "write one, such as device.attributes['" + driver + "'].size == 4"
	case len(s.CEL.Expression) > resourceapi.CELSelectorExpressionMaxLength:
		const most = resourceapi.CELSelectorExpressionMaxLength
		return fmt.Sprintf("a selector of %d characters: at most %d", len(s.CEL.Expression), most), "shorten it"
	}
	result := cel.GetCompiler(celFeatures()).CompileCELExpression(s.CEL.Expression, cel.Options{})
	switch {
	case result.Error != nil:
		// CEL adds the expression with an arrow below the place: of that one line is
		// enough.
		detail, _, _ := strings.Cut(strings.TrimPrefix(result.Error.Detail, "compilation failed: "), "\n")
		return "the selector does not compile: " + oneLine(detail), "correct the CEL expression: " + oneLine(s.CEL.Expression)
	case result.MaxCost > resourceapi.CELSelectorExpressionMaxCost:
		return "the selector may take too long", "make the CEL expression simpler"
	}
	return "", ""
}

// tolerated reports whether a request takes a device in spite of a taint.
func (a *alternative) tolerated(taint *resourceapi.DeviceTaint) bool {
	if taint.Effect != resourceapi.DeviceTaintEffectNoSchedule && taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
		return true
	}
	return slices.ContainsFunc(a.tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, *taint) })
}
