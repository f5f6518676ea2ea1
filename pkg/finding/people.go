package finding

import (
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/lazy"
)

// ForPeople returns the findings in the order in which people read them: what is wrong with cards and the machine stands before what
// follows for the rings, and what only repeats it is left out. What several LPUs have alike, with the same remedy, is one finding about
// all of them: "lpu2, lpu3 and lpu5".
func (l List) ForPeople() List {
	ordered := slices.DeleteFunc(slices.Clone(l), func(f Finding) bool {
		return f.ID == RingAbsentCard && slices.ContainsFunc(l, func(cause Finding) bool {
			return cause.Subject == f.Subject && (cause.ID == Absent || cause.ID == Gone)
		})
	})
	slices.SortStableFunc(ordered, func(a, b Finding) int { return rank(a) - rank(b) })
	var all []alike
	for _, f := range ordered {
		i := slices.IndexFunc(all, func(a alike) bool { return a.takes(f) })
		if i < 0 {
			all = append(all, alike{f})
			continue
		}
		all[i] = append(all[i], f)
	}
	merged := List{}
	for _, a := range all {
		merged = append(merged, a.one())
	}
	return merged
}

// rank is greater for what follows from other findings.
func rank(f Finding) int {
	if areaOf(f.ID) == Ring {
		return 1
	}
	return 0
}

func areaOf(id ID) Area {
	for _, g := range table[:] {
		if slices.ContainsFunc(g.Rules, func(r Rule) bool { return r.ID == id }) {
			return g.Area
		}
	}
	return ""
}

// alike are findings about several LPUs that differ in names and addresses of LPUs only.
type alike List

// named is a name or an address of an LPU.
var named = lazy.Regexp(`\blpu[0-9]+\b|\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b`)

// takes reports whether a finding can become one with those that there are.
func (a alike) takes(f Finding) bool {
	first := a[0]
	blank := func(text string) string { return named().ReplaceAllString(text, "#") }
	return f.ID == first.ID && f.Severity == first.Severity && f.File == first.File && f.Remedy == first.Remedy &&
		(f == first || blank(f.Subject) == "#" && blank(first.Subject) == "#" && blank(f.Message) == blank(first.Message))
}

// one is the findings as one, with all names and addresses in the places of those of the first.
func (a alike) one() Finding {
	f := a[0]
	if len(a) == 1 {
		return f
	}
	join := func(text func(Finding) string) string {
		place := -1
		return named().ReplaceAllStringFunc(text(f), func(string) string {
			place++
			var all []string
			for _, other := range a {
				if name := named().FindAllString(text(other), -1)[place]; !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
			return listed(all)
		})
	}
	f.Subject, f.Message = join(func(f Finding) string { return f.Subject }), join(func(f Finding) string { return f.Message })
	if slices.ContainsFunc(a, func(other Finding) bool { return other.Line != f.Line }) {
		f.Line = 0
	}
	return f
}

// listed is a list in words: "a, b and c".
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
