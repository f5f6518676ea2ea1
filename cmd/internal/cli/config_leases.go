package cli

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const mostUsageDays = 10 * 365

// LeasesConfig says what `lpuctl lease serve` leases, and how much of it to one user.
type LeasesConfig struct {
	// Pool are the PCI addresses of the LPUs that can be leased; none: all, unless
	// Kubernetes hands out those of the node.
	Pool     []string `json:"pool"`
	MaxLPUs  int      `json:"maxLPUs"`  // that one user leases and reserves; 0: no limit
	MaxHours int      `json:"maxHours"` // of a lease, and of a reservation from now on; 0: no limit
	// MaxWaiting is how many wishes of one user wait at most, and MaxWaitingInAll how many of
	// all users; 0: no limit.
	MaxWaiting      int `json:"maxWaiting"`
	MaxWaitingInAll int `json:"maxWaitingInAll"`
	// UsageDays is for how many days it is recorded who has used what; 0: it is not.
	UsageDays int `json:"usageDays"`
	// Backfill lets a wish that comes later have LPUs that a wish ahead waits for, where it
	// gives them back before that wish can start.
	Backfill bool `json:"backfill"`
	// Hook is the program that cleans an LPU after a lease, a path under the root; "": none.
	// It is killed after HookTimeout.
	Hook        string `json:"hook"`
	HookTimeout string `json:"hookTimeout"`
}

func defaultLeases() LeasesConfig {
	return LeasesConfig{Pool: []string{}, MaxWaiting: 16, MaxWaitingInAll: 4096, UsageDays: 90, HookTimeout: "1m"}
}

// check finds values that the types allow and the arbiter cannot use.
func (c *LeasesConfig) check() (faults strictyaml.Faults) {
	for i, text := range c.Pool {
		at := fmt.Sprintf("pool.%d", i)
		if address, err := pci.Parse(text); err != nil || address.String() != text {
			faults.Add(at, fmt.Sprintf("%q is not a PCI address in the form 0000:b1:00.1", text),
				"write the address that lpuctl list shows: an index may be another LPU's when a card is gone")
		} else if slices.Index(c.Pool, text) < i {
			faults.Add(at, text+" is there twice", "keep one of them")
		}
	}
	const mostHours = 365 * 24
	number := func(key string, n int) {
		if n < 0 || n > mostHours {
			faults.Add(key, fmt.Sprintf("%d is not a number from 0 to %d", n, mostHours), "write 0 for no limit")
		}
	}
	number("maxLPUs", c.MaxLPUs)
	number("maxHours", c.MaxHours)
	number("maxWaiting", c.MaxWaiting)
	number("maxWaitingInAll", c.MaxWaitingInAll)
	if c.UsageDays < 0 || c.UsageDays > mostUsageDays {
		faults.Add("usageDays", fmt.Sprintf("%d is not a number from 0 to %d", c.UsageDays, mostUsageDays), "write 0 to record nothing")
	}
	if c.Hook != "" && (!path.IsAbs(c.Hook) || path.Clean(c.Hook) != c.Hook) {
		faults.Add("hook", fmt.Sprintf("%q is not the absolute path of a program", c.Hook), "write a path such as /etc/lpuctl/after-lease")
	}
	if err := checkTime(c.HookTimeout, time.Second, time.Hour); err != nil {
		faults.Add("hookTimeout", err.Error(), "write "+defaultLeases().HookTimeout)
	}
	return faults
}

// Addresses are the LPUs that can be leased; nil: all.
func (c *LeasesConfig) Addresses() (pool []pci.Address) {
	for _, text := range c.Pool {
		address, _ := pci.Parse(text) // check has seen that it is one
		pool = append(pool, address)
	}
	return pool
}

// HookLimit is after which time the hook is killed.
func (c *LeasesConfig) HookLimit() time.Duration {
	limit, _ := time.ParseDuration(c.HookTimeout) // check has seen that it is a time
	return limit
}

// Cordons keep the pool from everybody who hands out LPUs without a lease.
func (c *LeasesConfig) Cordons() health.Cordons {
	cordons := health.Cordons{}
	for _, address := range c.Addresses() {
		cordons[address] = health.Cordon{Reason: "it is set apart for leases (leases.pool)", SetApart: true}
	}
	return cordons
}
