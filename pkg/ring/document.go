package ring

import (
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// MaxSize is the most bytes of a ring table. A ring of 64 cards takes 8 KiB.
const MaxSize = 1 << 20

// field is a value in the document: of a key in an object, or an item of a list. It is
// nil if the object does not have this key.
type field = *strictyaml.Value

// at is the location of a key, or of an item of a list.
func at(f field) location {
	if f == nil {
		return location{}
	}
	return location{f.Line, f.Pointer()}
}

// document reads data into a tree, or reports why it cannot and returns nil.
func (r *report) document(data []byte) field {
	// The values are enough for more than 10,000 links. A ring table needs four levels.
	root, faults := strictyaml.Read(data, strictyaml.Limits{Bytes: MaxSize, Values: 200_000, Depth: 32})
	for _, f := range faults {
		switch at := (location{line: f.Line}); f.Kind {
		case strictyaml.TooLarge:
			r.add(finding.RingTooLarge, at, "", "%s, which no ring table has", f.Message)
		case strictyaml.Second:
			r.add(finding.RingTrailing, at, "", "there is more text after the table")
		default:
			r.add(finding.RingSyntax, at, "", "%s", f.Message)
		}
	}
	if root == nil && len(faults) == 0 {
		r.empty(location{})
	}
	return root
}

// fault reports a key that is there twice, or is not known.
func (r *report) fault(kind strictyaml.Kind, f field, message, remedy string) {
	id := finding.RingKey
	if kind == strictyaml.Duplicate {
		id = finding.RingDuplicateKey
	}
	r.add(id, at(f), "", "%s", message).Remedy = remedy
}
