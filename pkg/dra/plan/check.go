package plan

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/dra"
)

// checkClass checks a class that somebody wrote.
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

// checkClaim fills in what the API server fills in, and checks what it checks.
func (c *cluster) checkClaim(w *wanted) (faults Faults) {
	devices := &w.Spec.Devices
	if len(devices.Requests) == 0 && w.Status.Allocation == nil {
		return Faults{w.fault("", "add spec.devices.requests, as in docs/dra.md", "asks for no device")}
	}
	if n := len(devices.Requests); n > resourceapi.DeviceRequestsMaxSize {
		faults = append(faults, w.fault("requests", "make several claims of it",
			"has %d requests: at most %d", n, resourceapi.DeviceRequestsMaxSize))
	}
	var names []string // of requests, and of alternatives as request/alternative
	for i := range devices.Requests {
		r := &devices.Requests[i]
		path := fmt.Sprintf("requests[%d]", i)
		names = append(names, r.Name)
		faults = append(faults, checkName(w, path, r.Name, names)...)
		for j := range r.FirstAvailable {
			names = append(names, r.Name+"/"+r.FirstAvailable[j].Name)
			faults = append(faults, checkName(w, fmt.Sprintf("%s.firstAvailable[%d]", path, j), r.FirstAvailable[j].Name, names)...)
		}
		faults = append(faults, checkForm(w, path, r)...)
		for _, a := range alternatives(r, path) {
			faults = append(faults, c.checkAlternative(w, &a)...)
		}
	}
	return append(faults, checkReferences(w, names)...)
}

// checkName checks a name of a request, which is the last of names.
func checkName(w *wanted, path, name string, names []string) (faults Faults) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		faults = append(faults, w.fault(path, "give it a name of lower case letters, digits and hyphens", "has a request with the name %q", name))
	}
	if last := len(names) - 1; slices.Contains(names[:last], names[last]) {
		faults = append(faults, w.fault(path, "give it another name", "has two requests with the name %q", names[last]))
	}
	return faults
}

func checkForm(w *wanted, path string, r *resourceapi.DeviceRequest) Faults {
	switch {
	case (r.Exactly == nil) == (len(r.FirstAvailable) == 0):
		return Faults{w.fault(path, "write one of them", "request %q: expected one of exactly and firstAvailable", r.Name)}
	case len(r.FirstAvailable) > resourceapi.FirstAvailableDeviceRequestMaxSize:
		return Faults{w.fault(path+".firstAvailable", "leave the last ones out", "request %q: has %d alternatives: at most %d",
			r.Name, len(r.FirstAvailable), resourceapi.FirstAvailableDeviceRequestMaxSize)}
	}
	return nil
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

func (c *cluster) checkAlternative(w *wanted, a *alternative) (faults Faults) {
	if *a.mode == "" {
		*a.mode = resourceapi.DeviceAllocationModeExactCount
	}
	if *a.mode == resourceapi.DeviceAllocationModeExactCount && *a.count == 0 {
		*a.count = 1
	}
	switch {
	case *a.mode != resourceapi.DeviceAllocationModeExactCount && *a.mode != resourceapi.DeviceAllocationModeAll:
		faults = append(faults, w.fault(a.path+".allocationMode", "write ExactCount or All", "request %q: allocationMode %q", a.name, *a.mode))
	case *a.mode == resourceapi.DeviceAllocationModeAll && *a.count != 0:
		faults = append(faults, w.fault(a.path+".count", "leave count out", "request %q: has a count, though it asks for all", a.name))
	case *a.mode == resourceapi.DeviceAllocationModeExactCount && *a.count < 0:
		faults = append(faults, w.fault(a.path+".count", "write 1 or more", "request %q: count %d", a.name, *a.count))
	}
	for i := range a.selectors {
		if problem, remedy := problemOf(&a.selectors[i]); problem != "" {
			faults = append(faults, w.fault(fmt.Sprintf("%s.selectors[%d]", a.path, i), remedy, "request %q: %s", a.name, problem))
		}
	}
	return append(faults, c.checkDriver(w, a)...)
}

// checkDriver checks that the class is there, and that slices of its driver are.
func (c *cluster) checkDriver(w *wanted, a *alternative) Faults {
	class, err := c.Get(a.class)
	switch {
	case a.class == "":
		return Faults{w.fault(a.path, "write deviceClassName: lpu", "request %q: has no deviceClassName", a.name)}
	case err != nil:
		return Faults{w.fault(a.path+".deviceClassName", c.similar(a.class), "request %q: there is no DeviceClass %q", a.name, a.class)}
	}
	here := map[string]bool{driver: true}
	for _, s := range c.slices {
		here[s.Spec.Driver] = true
	}
	for _, s := range slices.Concat(class.Spec.Selectors, a.selectors) {
		if s.CEL == nil {
			continue
		}
		if m := ofDriver().FindStringSubmatch(s.CEL.Expression); m != nil && !here[m[1]] {
			return Faults{w.fault(a.path, "give --slices with slices of "+m[1]+", or plan this claim without the request",
				"request %q: asks for a device of the driver %s; the slices here are of %s", a.name, m[1], strings.Join(driversOf(here), ", "))}
		}
	}
	return nil
}

// ofDriver finds the driver that a selector asks for.
var ofDriver = lazy.Regexp(`device\.driver\s*==\s*["']([^"']+)["']`)

func driversOf(here map[string]bool) (names []string) {
	for name := range here {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkReferences checks that constraints and configs name requests of the claim.
func checkReferences(w *wanted, names []string) (faults Faults) {
	check := func(path string, requests []string) {
		for _, name := range requests {
			if !slices.Contains(names, name) {
				faults = append(faults, w.fault(path, "name one of "+strings.Join(names, ", "), "names the request %q, which it does not have", name))
			}
		}
	}
	for i, constraint := range w.Spec.Devices.Constraints {
		path := fmt.Sprintf("constraints[%d]", i)
		check(path, constraint.Requests)
		if (constraint.MatchAttribute == nil) == (constraint.DistinctAttribute == nil) {
			faults = append(faults, w.fault(path, "write one of them", "has a constraint without one of matchAttribute and distinctAttribute"))
		}
	}
	for i, config := range w.Spec.Devices.Config {
		path := fmt.Sprintf("config[%d]", i)
		check(path, config.Requests)
		if config.Opaque == nil || config.Opaque.Driver == "" {
			faults = append(faults, w.fault(path, "write opaque, with driver and parameters", "has a config without a driver"))
		} else if err := parameters(config.Opaque); err != nil {
			faults = append(faults, w.fault(path+".opaque", configRemedy, "has a config that the driver refuses: %s", err))
		}
	}
	return faults
}

// configRemedy is a config as the driver takes it.
const configRemedy = "write parameters: {apiVersion: " + discovery.APIVersion + ", kind: " + dra.ConfigKind + ", variables: list}"

// parameters checks what a config says to our driver, which would fail to prepare a claim that says anything else.
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
		// CEL adds the expression with an arrow below the place: of that one line is enough.
		detail, _, _ := strings.Cut(strings.TrimPrefix(result.Error.Detail, "compilation failed: "), "\n")
		return "the selector does not compile: " + oneLine(detail), "correct the CEL expression: " + oneLine(s.CEL.Expression)
	case result.MaxCost > resourceapi.CELSelectorExpressionMaxCost:
		return "the selector may take too long", "make the CEL expression simpler"
	}
	return "", ""
}

// tolerated tells whether a request takes a device in spite of a taint.
func (a *alternative) tolerated(taint *resourceapi.DeviceTaint) bool {
	if taint.Effect != resourceapi.DeviceTaintEffectNoSchedule && taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
		return true
	}
	return slices.ContainsFunc(a.tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, *taint) })
}
