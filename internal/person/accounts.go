package person

import (
	"iter"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// accounts are the users of passwd(5).
type accounts struct {
	names map[int]string // by uid; of several names of one uid the first, as getpwuid(3) has it
	uids  map[string]int
	first int // the uid of the first; -1: there is none
}

// parsePasswd reads what passwd or getent says. Lines that name no user are left out.
func parsePasswd(data []byte) *accounts {
	a := &accounts{map[int]string{}, map[string]int{}, -1}
	for fields := range split(data, ":") {
		if len(fields) < 3 || isNoName(fields[0]) {
			continue
		}
		uid, ok := parseID(fields[2])
		if !ok {
			continue
		}
		if a.first < 0 {
			a.first = uid
		}
		if _, has := a.names[uid]; !has {
			a.names[uid] = fields[0]
		}
		if _, has := a.uids[fields[0]]; !has {
			a.uids[fields[0]] = uid
		}
	}
	return a
}

// isNoName reports whether a name cannot be shown to people.
func isNoName(name string) bool {
	return name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// split returns the fields of each line.
func split(data []byte, separator string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(string(data)) {
			if !yield(strings.Split(strings.TrimSuffix(line, "\n"), separator)) {
				return
			}
		}
	}
}

// parseID reads a uid. The highest is none (chown(2)).
func parseID(text string) (uid int, ok bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil && n < math.MaxUint32
}

// subuids is a range of subordinate uids.
type subuids struct {
	owner        string // a name, or a uid
	start, count uint64
}

func (s subuids) has(uid int) bool {
	return uid >= 0 && uint64(uid) >= s.start && uint64(uid)-s.start < s.count
}

// parseSubuid reads subuid(5). What newuidmap reads is read: its numbers may be octal or
// hexadecimal, as strtoul(3) has them. Other lines are left out, as newuidmap does.
func parseSubuid(data []byte) (ranges []subuids) {
	for fields := range split(data, ":") {
		if len(fields) == 3 {
			ranges = appendRange(ranges, fields[0], fields[1], fields[2])
		}
	}
	return ranges
}

// parseSubids reads what getsubids says: "0: alice 100000 65536".
func parseSubids(text string) (ranges []subuids) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 4 {
			ranges = appendRange(ranges, fields[1], fields[2], fields[3])
		}
	}
	return ranges
}

func appendRange(ranges []subuids, owner, start, count string) []subuids {
	s, sOK := parseNumber(start)
	c, cOK := parseNumber(count)
	if isNoName(owner) || !sOK || !cOK {
		return ranges
	}
	return append(ranges, subuids{owner, s, c})
}

// parseNumber reads a number as strtoul(3) does with base 0.
func parseNumber(text string) (n uint64, ok bool) {
	text = strings.TrimPrefix(strings.TrimLeft(text, " \t"), "+")
	n, err := strconv.ParseUint(text, 0, 64)
	return n, err == nil && !strings.ContainsAny(text, "_oO") && !strings.HasPrefix(strings.ToLower(text), "0b")
}

// subidSource returns where newuidmap looks for subordinate uids: "" in the file, else in
// a library libsubid_NAME.so. Of nsswitch.conf it takes the first such line, and of that
// the first source (shadow, lib/nss.c).
func subidSource(data []byte) string {
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.EqualFold(fields[0], "subid:") || line[0] == '#' {
			continue
		}
		if len(fields) == 1 || fields[1] == "files" {
			return ""
		}
		return fields[1]
	}
	return ""
}

// membersOf are the members in a line of group(5).
func membersOf(text string) []string {
	for fields := range split([]byte(text), ":") {
		if len(fields) == 4 {
			return strings.FieldsFunc(fields[3], func(r rune) bool { return r == ',' })
		}
	}
	return nil
}
