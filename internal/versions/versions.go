// Package versions compares releases of programs and of formats.
package versions

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/lazy"
)

// Release is the version of a program. The zero value is an unknown one.
type Release struct {
	Number [3]int
	Text   string
}

var form = lazy.Regexp(`^(?:[0-9]+:)?v?(([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?[0-9A-Za-z.+~_-]{0,60})$`)

// Parse reads v2.2.9, 1.6.20~ds1-1+deb12u1 and 5:28.2.2-1~debian alike.
func Parse(text string) Release {
	m := form().FindStringSubmatch(text)
	if m == nil {
		return Release{}
	}
	r := Release{Text: m[1]}
	for i := range r.Number {
		r.Number[i], _ = strconv.Atoi(m[i+2])
	}
	return r
}

// Known reports whether the version is known.
func (r Release) Known() bool { return r.Text != "" }

// Before reports whether a release is older than another, such as "1.7". An unknown
// release is older than every other.
func (r Release) Before(other string) bool {
	o := Parse(other)
	return slices.Compare(r.Number[:], o.Number[:]) < 0
}

// Within reports whether a release is in a span such as 2.0-2.4, which begins with 2.0
// and ends before 2.4. Either end may be left out.
func (r Release) Within(span string) bool {
	since, before, _ := strings.Cut(span, "-")
	return (since == "" || !r.Before(since)) && (before == "" || r.Before(before))
}
