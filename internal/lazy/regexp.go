// Package lazy makes what most runs of the program do not need when it is first used, so
// that the start does not pay for it.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp compiles an expression, which must be valid, at the first call. All of them
// together took a tenth of the start.
func Regexp(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
