package top

import (
	"math"
	"strings"
)

// Style is what a terminal can show.
type Style struct {
	UTF8   bool // else ASCII only
	Colour bool // else no colours and no other attributes
}

// bar returns a value as a bar of some columns, which is full at the limit.
func (s Style) bar(value, limit float64, columns int) string {
	full := max(0, min(1, share(value, limit))) * float64(columns)
	whole := int(full)
	if !s.UTF8 {
		whole = int(math.Round(full))
		return strings.Repeat("#", whole) + strings.Repeat(".", columns-whole)
	}
	text := strings.Repeat("█", whole)
	if rest := []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[int((full-float64(whole))*8)]; rest != "" {
		text += rest
		whole++
	}
	return text + strings.Repeat("·", columns-whole)
}

// spark returns values as a line of one character each, between the lowest and the
// highest of them. What is not known is blank.
func (s Style) spark(values []*float64) string {
	ramp := []rune("▁▂▃▄▅▆▇█")
	if !s.UTF8 {
		ramp = []rune(".:-=+*#@")
	}
	low, high := span(values)
	line := make([]rune, len(values))
	for i, v := range values {
		switch {
		case v == nil:
			line[i] = ' '
		case *low == *high:
			line[i] = ramp[len(ramp)/4]
		default:
			line[i] = ramp[int((*v-*low)/(*high-*low)*float64(len(ramp)-1)+0.5)]
		}
	}
	return string(line)
}

// The attributes of text, as parameters of the sequence that sets them (ECMA-48, 8.3.117).
const (
	bold    = "1"
	dim     = "2"
	reverse = "7"
	red     = "31"
	green   = "32"
	yellow  = "33"
)

// paint gives text an attribute, if the terminal is to have any.
func (s Style) paint(attribute, text string) string {
	if !s.Colour || attribute == "" || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[m"
}
