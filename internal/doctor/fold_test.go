package doctor

import (
	"context"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// diagnosed is what is diagnosed of findings, one each.
func diagnosed(t *testing.T, ids map[Link]finding.ID) *Diagnosis {
	t.Helper()
	var checks []Check
	for _, link := range Links() {
		if id := ids[link]; id != "" {
			checks = append(checks, Check{link, "", func(context.Context) Result {
				return Result{Findings: finding.List{finding.New(id, "lpu2", "a message", "")}}
			}})
		}
	}
	return Diagnose(t.Context(), patience, checks)
}

// TestSuspects: a warning that may bring an error about comes before it, and one that may not is a warning.
func TestSuspects(t *testing.T) {
	for _, c := range []struct {
		before Link
		is     finding.ID
		link   Link
		broken finding.ID
		first  Link
	}{
		{Card, finding.CardWithoutLPU, Spec, finding.NodeWrong, Card},
		{Card, finding.ModelWithoutIDs, Spec, finding.NoSpec, Card},
		{Card, finding.SameCard, Node, finding.SharedNode, Card},
		{Card, finding.SameCard, Spec, finding.NodeWrong, Spec},
		{Card, finding.CardWithoutLPU, Spec, finding.SpecHangs, Spec},
		{Health, finding.LinkDegraded, Spec, finding.NodeWrong, Spec},
	} {
		d := diagnosed(t, map[Link]finding.ID{c.before: c.is, c.link: c.broken})
		if s := d.First(); s == nil || s.Link != c.first || d.Steps[1].State != Broken {
			t.Errorf("%s, then %s: first is %v", c.is, c.broken, s)
		}
	}
	if s := diagnosed(t, map[Link]finding.ID{Card: finding.CardWithoutLPU, Spec: finding.SpecDrift}).First(); s != nil {
		t.Errorf("two warnings: %v is broken", s)
	}
}

// TestNoLPU: a machine without an LPU has nothing to look at, which is not well.
func TestNoLPU(t *testing.T) {
	d := Diagnose(t.Context(), patience, Cards(func(context.Context) (*discovery.Inventory, error) { return &discovery.Inventory{}, nil }))
	if s := d.Steps[0]; !d.NoLPU || s.State != Absent || s.Says != "no LPU on the PCI bus" {
		t.Errorf("%+v", d)
	}
}
