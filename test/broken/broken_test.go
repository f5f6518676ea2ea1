package broken

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestBroken breaks a node, wants doctor to name the cause first, carries out the remedy, and wants nothing to be broken then.
func TestBroken(t *testing.T) {
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if r.devices && os.Geteuid() != 0 {
				t.Skip("only root can make device files")
			}
			r.try(t)
		})
	}
}

func (r *row) try(t *testing.T) {
	n := simulate(t, words(cmp.Or(r.tree, "--lpus 4"))...)
	n.sh(t, r.before)
	n.run(t, program, "--quiet", "cdi", "refresh")
	if r.before != "" { // the others are healthy as the simulated server is
		n.well(t)
	}
	n.sh(t, r.breaks)
	for i := range r.finds {
		r.finds[i].mend(t, n)
	}
	n.well(t)
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
