package broken

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// try breaks a node, and mends it by what doctor says. An engine, if there is one, is to fail between.
func (r *row) try(t *testing.T, e *Engine) {
	t.Helper()
	n := simulate(t, e.options(cmp.Or(r.tree, "--lpus 4"))...)
	n.sh(t, r.before)
	n.run(t, program, "--quiet", "cdi", "refresh")
	if r.before != "" { // the others are healthy as the simulated server is
		n.well(t)
	}
	n.sh(t, r.breaks)
	e.proves(t, n, false)
	for i := range r.finds {
		r.finds[i].mend(t, n)
	}
	n.well(t)
	e.proves(t, n, true)
}

// Engine is a real engine of containers.
type Engine struct {
	// Numbers are device numbers of four LPUs' nodes that can be opened, as lpuctl simulate takes them.
	Numbers string
	// Proves reports whether containers get from the engine what they were promised, on the machine that is the node below root, and
	// what was printed.
	Proves func(t *testing.T, root string) (bool, string)
}

func (e *Engine) options(tree string) []string {
	options := strings.Fields(tree)
	if e != nil {
		options = append(options, "--numbers", e.Numbers)
	}
	return options
}

func (e *Engine) proves(t *testing.T, n *node, want bool) {
	t.Helper()
	if e == nil {
		return
	}
	if got, said := e.Proves(t, filepath.Join(n.dir, "node")); got != want {
		t.Errorf("the engine gives containers what was promised: %v, want %v\n%s", got, want, said)
	}
}

// On breaks those nodes that are named one after the other, and wants the engine to fail until the remedy of doctor was carried out.
func (e *Engine) On(t *testing.T, names ...string) {
	t.Helper()
	all := map[string]*row{}
	list := rows()
	for i := range list {
		all[list[i].name] = &list[i]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if all[name] == nil {
				t.Fatal("there is no such row")
			}
			all[name].try(t, e)
		})
	}
}

// well wants that nothing is found.
func (n *node) well(t *testing.T) {
	t.Helper()
	if all := complaints(n.doctor(t)); len(all) > 0 {
		t.Errorf("the node is to be healthy, and there is\n%s", strings.Join(all, "\n"))
	}
}

// mend wants a cause to be what is found first, and does what its remedy says.
func (c *cause) mend(t *testing.T, n *node) {
	t.Helper()
	links := n.doctor(t)
	l, p := broken(links)
	if p == nil {
		t.Fatalf("nothing is broken, and %s in %s is wanted", c.says, c.link)
	}
	if l.Link != c.link || !regexp.MustCompile(c.says).MatchString(p.String()) {
		t.Errorf("%s: %v\n  %s\nwanted: %s: %s", l.Link, p, p.Remedy, c.link, c.says)
	}
	switch {
	case c.told == "":
		n.carry(t, p.Remedy)
	case !regexp.MustCompile(c.told).MatchString(p.Remedy):
		t.Errorf("%v: the remedy is %q, and not %q", p, p.Remedy, c.told)
	}
	if c.then != "" {
		n.sh(t, c.then)
	}
}
