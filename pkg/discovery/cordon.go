package discovery

import (
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// WithCordons returns a copy of the inventory that says which LPUs are cordoned, and what
// is wrong with the file of the cordons. A scan does not do it: a cordon is not a fact
// about the machine, and changes neither what is usable nor what is healthy.
func (inv *Inventory) WithCordons(cordons health.Cordons, problems finding.List) *Inventory {
	marked := *inv
	marked.Problems = append(slices.Clip(slices.Clone(inv.Problems)), problems...)
	marked.LPUs = slices.Clone(inv.LPUs)
	for i := range marked.LPUs {
		l := &marked.LPUs[i]
		if c, ok := cordons[l.Address]; ok {
			l.Cordoned = &c
			remedy := c.Remedy(l.Name)
			if !c.SetApart {
				remedy = "when it may be handed out again: " + remedy
			}
			l.Reasons.Add(finding.Cordoned, l.Name, "it is cordoned "+c.String(), remedy)
		}
	}
	return &marked
}
