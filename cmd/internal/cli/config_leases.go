package cli

import (
	"fmt"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// LeasesConfig says what `lpuctl lease serve` leases, and how much of it to one user.
type LeasesConfig struct {
	// Pool are the PCI addresses of the LPUs that can be leased; none: all, unless Kubernetes hands out those of the node.
	Pool     []string `json:"pool"`
	MaxLPUs  int      `json:"maxLPUs"`  // that one user leases and reserves; 0: no limit
	MaxHours int      `json:"maxHours"` // of a lease, and of a reservation from now on; 0: no limit
}

func defaultLeases() LeasesConfig { return LeasesConfig{Pool: []string{}} }

// check finds values that the types allow and the arbiter cannot use.
func (c *LeasesConfig) check() (faults []strictyaml.Fault) {
	for i, text := range c.Pool {
		at := fmt.Sprintf("pool.%d", i)
		if address, err := discovery.ParseAddress(text); err != nil || address.String() != text {
			faults = append(faults, strictyaml.Fault{
				Path: at, Message: fmt.Sprintf("%q is not a PCI address in the form 0000:b1:00.1", text),
				Remedy: "write the address that lpuctl list shows: an index may be another LPU's when a card is gone",
			})
		} else if slices.Index(c.Pool, text) < i {
			faults = append(faults, strictyaml.Fault{Path: at, Message: text + " is there twice", Remedy: "keep one of them"})
		}
	}
	const mostHours = 365 * 24
	for key, n := range map[string]int{"maxLPUs": c.MaxLPUs, "maxHours": c.MaxHours} {
		if n < 0 || n > mostHours {
			faults = append(faults, strictyaml.Fault{
				Path: key, Message: fmt.Sprintf("%d is not a number from 0 to %d", n, mostHours), Remedy: "write 0 for no limit",
			})
		}
	}
	return faults
}

// Addresses are the LPUs that can be leased; nil: all.
func (c *LeasesConfig) Addresses() (pool []discovery.Address) {
	for _, text := range c.Pool {
		address, _ := discovery.ParseAddress(text) // check has seen that it is one
		pool = append(pool, address)
	}
	return pool
}

// Cordons keep the pool from everybody who hands out LPUs without a lease.
func (c *LeasesConfig) Cordons() health.Cordons {
	cordons := health.Cordons{}
	for _, address := range c.Pool {
		cordons[address] = health.Cordon{Reason: "it is set apart for leases (leases.pool)", SetApart: true}
	}
	return cordons
}
