package discovery

import (
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// Cordon notes which LPUs are cordoned, by what a file says, and what is wrong with the file. A scan does not do it: a cordon is not a
// fact about the machine, and changes neither what is usable nor what is healthy.
func (inv *Inventory) Cordon(f *health.CordonFile) {
	cordons, problems := f.Read()
	inv.Problems = append(inv.Problems, problems...)
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if c, ok := cordons[l.Address.String()]; ok {
			l.Cordoned = &c
			l.reason(finding.Cordoned, "it is cordoned "+c.String(), "when it may be handed out again: lpuctl uncordon "+l.Name)
		}
	}
}
