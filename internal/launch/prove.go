package launch

import (
	"cmp"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Container is how a container gets LPUs, and what it gets by that.
type Container struct {
	Devices []string       // qualified names, as the runtime is asked for them
	Env     []cdi.Variable // to set besides
	// Table is to be mounted besides, and is in place at TableAt; nil: the devices bring
	// it, or there is none.
	Table   *cdi.RingTable
	TableAt string
	// Gets is what the devices bring. Variables of Env and Table take the place of its own.
	Gets *cdi.Explanation
}

// Container says how a container gets some LPUs of an inventory, by name, and puts their
// ring table in place.
func (s *Site) Container(inv *discovery.Inventory, names []string) (*Container, error) {
	e, err := s.Explain(inv, names)
	if err != nil {
		return nil, err
	}
	gets, err := cdi.Explain(inv, cdi.Options{Kind: s.Kind}, e.Use)
	if err != nil {
		return nil, err
	}
	c := &Container{Devices: e.Use, Env: e.UseEnv, Table: e.UseTable, Gets: gets}
	if c.Table != nil {
		c.TableAt, err = s.putTable(c.Table)
	}
	return c, err
}

// TableOf is the ring table that the container reads; nil: there is none.
func (c *Container) TableOf() *cdi.RingTable { return cmp.Or(c.Table, c.Gets.Table) }

// Started returns the command that starts a container with some LPUs, as Run would, without
// a lease: {args} of the job's arguments are replaced.
func (j *Job) Started(inv *discovery.Inventory, names []string) ([]string, error) {
	plan, err := j.plan(&grant{inv: inv, lpus: names}, nil, askImage(j.Args))
	if err != nil {
		return nil, err
	}
	return plan.Command, nil
}
