package ring

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func (r *parser) readLpuctl(root field) {
	r.Format = FormatLpuctl
	top := r.object(root, lpuctlKeys())
	r.checkHeader(top["apiVersion"], "apiVersion", statefile.APIVersion)
	r.checkHeader(top["kind"], "kind", kind)
	for _, f := range r.list(top["rings"]) {
		r.readRing(f)
	}
	for _, f := range r.list(top["links"]) {
		object := r.object(f, []string{"a", "b"}, "a", "b")
		a, ok1 := r.id(object["a"])
		b, ok2 := r.id(object["b"])
		if ok1 && ok2 {
			r.links = append(r.links, link{from: a, to: b, at: at(f)})
		}
	}
	if len(r.IDs) == 0 && !r.HasErrors() {
		r.empty(location{line: root.Node.Line})
	}
	r.checkLinks()
}

func (r *parser) checkHeader(f field, name, want string) {
	switch {
	case f == nil:
		r.add(finding.RingKey, location{}, "", "%q is missing", name).Remedy = fmt.Sprintf("add \"%s: %s\"", name, want)
	case f.Node.Kind != yaml.ScalarNode || f.Node.Value != want:
		r.wrongType(f, want, "")
	}
}

// readRing reads one ring. A card that is already in a ring has no free port: a ring with
// such a card adds no links.
func (r *parser) readRing(f field) {
	items := r.list(f)
	if len(items) == 0 && !r.HasErrors() {
		r.empty(at(f))
	}
	var cards []int
	for _, item := range items {
		before := len(r.IDs)
		switch card, ok := r.id(item); {
		case ok && card < before:
			id := r.IDs[card]
			r.add(finding.RingDegree, at(item), id.String(), "%s is in the rings twice (first on line %d)", id, id.Line).
				Remedy = "a card has two ports: list it once"
		case ok:
			cards = append(cards, card)
		}
	}
	if len(cards) < len(items) {
		return
	}
	for _, l := range Links(cards, len(cards) > 2, false) { // two cards: one cable
		r.links = append(r.links, link{from: l[0], to: l[1], ring: true, at: at(f)})
	}
}
