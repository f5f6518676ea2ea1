package discovery

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// attributes reads optional attributes of sysfs. What is there and cannot be read, or
// cannot be right, becomes a warning. The zero value drops the warnings: of a port that
// cannot be read no card is to blame.
type attributes struct {
	subject  string // name of the LPU that the warnings are about
	warnings *finding.List
}

// attributes returns a reader whose warnings are reasons of the LPU.
func (l *LPU) attributes() attributes { return attributes{l.Name, &l.Reasons} }

func (a attributes) warn(err error) {
	if a.warnings != nil {
		a.warnings.Add(finding.UnreadableAttribute, a.subject, err.Error(), "")
	}
}

// optional returns the text of an attribute that not every card has. An absent attribute
// is "". One that exists but cannot be read is "" and a warning.
func (a attributes) optional(text string, err error) string {
	if err != nil && !host.IsAbsent(err) {
		a.warn(err)
	}
	return text
}

// number reads an attribute whose value is a number; ok is false without one.
func (a attributes) number(dir *host.Dir, name string) (n int, ok bool) {
	text := a.optional(dir.Line(name))
	if text == "" {
		return 0, false
	}
	v, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		a.warn(dir.Fault(name, fmt.Errorf("%.20q is not a number", text)))
		return 0, false
	}
	return int(v), true
}

// count reads an attribute whose value is a number from 0 on; nil without one.
func (a attributes) count(dir *host.Dir, name string) *uint64 {
	text := a.optional(dir.Line(name))
	if text == "" {
		return nil
	}
	return a.parse(dir, name, text)
}

// parse returns the value of a counter; nil, with a warning, if it is not a number.
func (a attributes) parse(dir *host.Dir, name, text string) *uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 0, 64)
	if err != nil {
		a.warn(dir.Fault(name, fmt.Errorf("%.20q is not a number", text)))
		return nil
	}
	return &n
}
