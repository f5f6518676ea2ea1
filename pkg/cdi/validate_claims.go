package cdi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// byDriver is how the file of a claim is made again.
const byDriver = "the DRA driver writes the file of a prepared claim anew, if it is not there, and whenever it starts"

// ofClaim gives the findings about the file of a claim that no runtime takes the remedy
// that helps.
func (d *document) ofClaim() {
	for i := range d.findings {
		d.findings[i].Remedy = byDriver + ": rm " + d.path
	}
}

// claimMember checks one file of a claim. before are those before it.
func (v *Validator) claimMember(d *document, before []*document, r *reading) {
	d.renewal = byDriver + ": rm " + d.path
	v.check(d, r)
	for _, other := range before {
		if names := sharedNames(d.spec, other.spec); len(names) > 0 {
			message := fmt.Sprintf("%s and %s both define %s", other.path, d.path, some(names))
			if filepath.Dir(other.path) == filepath.Dir(d.path) {
				d.add(finding.SpecConflict, "", message+": runtimes hand out neither", "remove the one that is a copy")
			} else {
				d.add(finding.Shadowed, "", message+": the second is used", "if the first is a leftover: rm "+other.path)
			}
		}
	}
	v.checkClaim(d)
	for _, other := range before {
		v.checkClaimsApart(d, other)
	}
}

// checkClaim holds the file of a claim against what the driver would write now.
func (v *Validator) checkClaim(d *document) {
	uid, _ := ClaimUID(d.path)
	c, err := claimOf(d.spec, uid)
	d.claim = c
	if err != nil {
		d.add(finding.ClaimFile, "", "it is not as the DRA driver writes it: "+err.Error(), d.renewal)
		return
	}
	if !v.Host || v.Inventory == nil {
		return
	}
	now, err := ClaimSpec(v.Inventory, *c, Options{})
	if err != nil {
		d.add(finding.ClaimFile, "", fmt.Sprintf("claim %s: %v: no container of it starts", c, err), "")
		return
	}
	for i, want := range now.Devices {
		drift := func(key, would string) {
			message := fmt.Sprintf("by a file made now, containers of claim %s would %s", c, would)
			d.add(finding.SpecDrift, fmt.Sprintf("devices.%d.containerEdits.%s", i, key), message, d.renewal)
		}
		have := d.spec.Devices[i]
		if !slices.Equal(have.ContainerEdits.Env, want.ContainerEdits.Env) {
			drift("env", "be told "+differing(have.ContainerEdits.Env, want.ContainerEdits.Env))
		}
		if tableOf(have) != tableOf(want) {
			drift("mounts", "get another ring table")
		}
	}
}

// differing are the variables of a list that another does not have.
func differing(have, want []string) string {
	missing := slices.DeleteFunc(slices.Clone(want), func(variable string) bool { return slices.Contains(have, variable) })
	if len(missing) == 0 {
		return "fewer variables"
	}
	return some(missing)
}

// checkClaimsApart finds LPUs that two claims have.
func (v *Validator) checkClaimsApart(d, other *document) {
	a, b := d.claim, other.claim
	if a == nil || b == nil || a.UID == b.UID {
		return
	}
	theirs := b.LPUs()
	for _, lpu := range a.LPUs() {
		if slices.Contains(theirs, lpu) {
			d.add(finding.ClaimOverlap, "", fmt.Sprintf("claims %s and %s both have LPU %s", a, b, v.nameOf(lpu)), "")
		}
	}
}

// nameOf names an LPU as people do, as far as it is known.
func (v *Validator) nameOf(a pci.Address) string {
	for _, l := range v.inventory().LPUs {
		if l.Address == a {
			return l.Name + " (" + a.String() + ")"
		}
	}
	return a.String()
}

// checkClaims finds claims without a file, files without a claim, and devices of claims
// that are asked for and not there.
func (v *Validator) checkClaims(findings *finding.List, files []*document) {
	var uids, names []string
	for _, d := range files {
		uid, _ := ClaimUID(d.path)
		uids = append(uids, uid)
		for _, device := range d.spec.Devices {
			names = append(names, ClaimKind+"="+device.Name)
		}
		if c := d.claim; v.Claims != nil && c != nil && !slices.Contains(v.Claims, uid) {
			findings.Add(finding.ClaimRecord, d.name(), "the DRA driver has not recorded claim "+c.String()+" as prepared",
				"the driver records it again within five seconds, while it runs; if no pod has the claim: lpuctl cdi remove --claim "+uid).At(d.path, 0)
		}
	}
	for _, uid := range v.Claims {
		if !slices.Contains(uids, uid) {
			findings.Add(finding.ClaimFile, uid, "the claim is prepared, and has no file: its containers do not start again",
				"start the DRA driver; if no pod has the claim: lpuctl cdi remove --claim "+uid)
		}
	}
	for _, name := range v.Devices {
		if strings.HasPrefix(name, ClaimKind+"=") && !slices.Contains(names, name) {
			findings.Add(finding.DeviceUnknown, name, "no file defines it: the claim is not prepared on this node, or its file was lost",
				"see whether the DRA driver runs; it writes lost files of prepared claims again within five seconds")
		}
	}
}
