package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/lazy"
)

// ForPeople returns the findings in the order in which people read them: what is wrong
// with cards and the machine stands before what follows for the rings, and what only
// repeats it is left out. What several have alike, with the same remedy, is one finding
// about all of them: "lpu2, lpu3 and lpu5".
func (l List) ForPeople() List {
	lost := map[string]bool{}
	for _, f := range l {
		lost[f.Subject] = lost[f.Subject] || f.ID == Absent || f.ID == Gone
	}
	ordered := slices.DeleteFunc(slices.Clone(l), func(f Finding) bool { return f.ID == RingAbsentCard && lost[f.Subject] })
	slices.SortStableFunc(ordered, func(a, b Finding) int { return cmp.Compare(rank(a), rank(b)) })
	var groups []List
	at := map[Finding]int{} // groups, by what their findings have alike
	for _, f := range ordered {
		key := f.nameless()
		i, known := at[key]
		if !known {
			i, at[key] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	merged := make(List, len(groups))
	for i, group := range groups {
		merged[i] = group.merge()
	}
	return merged
}

// rank is greater for what follows from other findings.
func rank(f Finding) int {
	i := slices.IndexFunc(table[:], func(g Group) bool { return g.Area == ringTables })
	if slices.ContainsFunc(table[i].Rules, func(r Rule) bool { return r.ID == f.ID }) {
		return 1
	}
	return 0
}

// named is a name or an address of an LPU.
var named = lazy.Regexp(`\blpu[0-9]+\b|\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b`)

// nameless is a finding without its subject, and if that is an LPU, without the names and
// addresses of LPUs.
func (f Finding) nameless() Finding {
	if f.Subject == "" || named().FindString(f.Subject) != f.Subject {
		f.Subject = ""
		return f
	}
	if f.ID == RingAbsentCard { // which is no mistake of its line
		f.Line = 0
	}
	f.Subject, f.Message = "", named().ReplaceAllString(f.Message, "")
	return f
}

// merge makes one of findings that are alike: it has all names and addresses in the
// places of those of the first.
func (l List) merge() Finding {
	f := l[0]
	if len(l) == 1 {
		return f
	}
	var subjects []string
	var places [][]string // the names in each
	for _, other := range l {
		if !slices.Contains(subjects, other.Subject) {
			subjects = append(subjects, other.Subject)
		}
		for place, name := range named().FindAllString(other.Message, -1) {
			if place == len(places) {
				places = append(places, nil)
			}
			if !slices.Contains(places[place], name) {
				places[place] = append(places[place], name)
			}
		}
	}
	f.Subject = listed(subjects)
	place := -1
	f.Message = named().ReplaceAllStringFunc(f.Message, func(string) string {
		place++
		return listed(places[place])
	})
	if slices.ContainsFunc(l, func(other Finding) bool { return other.Line != f.Line }) {
		f.Line = 0
	}
	return f
}

// listed is a list in words: "a, b and c".
func listed(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
