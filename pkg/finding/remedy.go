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
// several ways it is the first that has some. nil: the remedy is in words, or it has to be
// completed.
func (f *Finding) Commands() []string {
	for way := range strings.SplitSeq(f.Remedy, ", or ") {
		var commands []string
		for clause := range strings.SplitSeq(way, "; ") {
			if _, command, ok := strings.Cut(clause, ": "); ok {
				clause = command
			}
			if typed().MatchString(clause) {
				commands = append(commands, clause)
			}
		}
		if len(commands) > 0 && !slices.ContainsFunc(commands, placeholder().MatchString) {
			return commands
		}
	}
	return nil
}
