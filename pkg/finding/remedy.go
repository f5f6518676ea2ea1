package finding

import (
	"errors"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/lazy"
)

// RemedyOf returns what to do about an error that knows it, by its method Remedy; "" for
// any other.
func RemedyOf(err error) string {
	type remediable interface {
		error
		Remedy() string
	}
	if known, ok := errors.AsType[remediable](err); ok {
		return known.Remedy()
	}
	return ""
}

// typed is how a command of a remedy begins, and placeholder what stands in one for
// something that the finding does not know: "modprobe DRIVER".
var (
	typed       = lazy.Regexp(`^(lpuctl|systemctl|chmod|chown|rm|mv|ln|echo|mkdir|mknod|modprobe|udevadm|usermod|xbutil) `)
	placeholder = lazy.Regexp(`(^|[ /])[A-Z]{3,}($|[ /])`)
)

// Commands returns the commands of the remedy, as they are typed, in their order. Of
// several ways it is the first. nil: the remedy is in words, or it has to be completed.
func (f *Finding) Commands() (commands []string) {
	way, _, _ := strings.Cut(f.Remedy, ", or ")
	clauses := strings.Split(way, "; ")
	for i, clause := range clauses {
		if _, command, ok := strings.Cut(clause, ": "); ok {
			clauses[i] = command
		}
	}
	for _, clause := range clauses {
		if typed().MatchString(clause) {
			commands = append(commands, clause)
		}
	}
	if slices.ContainsFunc(commands, placeholder().MatchString) {
		return nil
	}
	return commands
}
