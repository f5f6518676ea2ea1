package cli

import (
	"cmp"
	"io"
	"strings"
	"unicode"

	"github.com/hyperaccel/lpuctl/internal/shell"
)

// Column is a column of a table.
type Column struct {
	Name string
	Room Room
	Hue  func(cell string) Hue // nil: it has no colours
}

// Room says when a table has a column.
type Room int

// The rooms: every table has the column; every table has it but on a terminal that is too
// narrow; only a terminal that is wide enough has it.
const (
	Always Room = iota
	Usual
	Roomy
)

// gap stands between two columns.
const gap = "  "

// WriteTable writes rows in columns, below their names if they have any. An empty cell is
// a dash, so that columns can be cut by scripts.
func (t *Terminal) WriteTable(names []string, rows [][]string) error {
	return t.writeTable(Each(names, func(name string) Column { return Column{Name: name} }), rows, false)
}

// WriteFitting writes a table that fits the terminal: columns that have no room are left
// out, the last of them first, and the last column, which always stays, is cut. What is
// no terminal gets the usual columns, whole.
func (t *Terminal) WriteFitting(columns []Column, rows [][]string) error {
	return t.writeTable(columns, rows, true)
}

// WriteWhole writes a table with all of its columns, whatever their room.
func (t *Terminal) WriteWhole(columns []Column, rows [][]string) error {
	return t.writeTable(columns, rows, false)
}

func (t *Terminal) writeTable(heads []Column, rows [][]string, fit bool) error {
	var lines [][]string
	if len(heads) > 0 && !t.NoHeaders {
		lines = append(lines, Each(heads, func(c Column) string { return c.Name }))
	}
	headers := len(lines)
	for _, row := range rows {
		lines = append(lines, Each(row, func(cell string) string { return cmp.Or(t.Screen.plain(oneLine(cell)), "-") }))
	}
	widths := widthsOf(lines)
	left := 0 // columns that are left for the last one; 0: as many as it needs
	if fit {
		heads, lines, left = t.fit(heads, lines, widths)
		widths = widthsOf(lines)
	}
	var text strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			last := i == len(line)-1
			if last && left > 0 {
				cell = t.Screen.cut(cell, left)
			}
			shown := cell
			if n >= headers && i < len(heads) && heads[i].Hue != nil {
				shown = t.PaintOut(heads[i].Hue(cell), cell)
			}
			text.WriteString(shown)
			if !last {
				text.WriteString(strings.Repeat(" ", widths[i]-columns(cell)) + gap)
			}
		}
		text.WriteString("\n")
	}
	_, err := io.WriteString(t.Out, text.String())
	return err
}

// fit leaves out the columns for which a terminal has no room, and says how much is left
// for the last one; 0 if that is not to be cut. A roomy column costs the last one nothing.
func (t *Terminal) fit(heads []Column, lines [][]string, widths []int) (kept []Column, cells [][]string, left int) {
	last := len(heads) - 1
	if len(lines) == 0 || last < 0 {
		return heads, lines, 0
	}
	least := min(widths[last], columns(heads[last].Name))
	used, full := 0, false
	var places []int
	for i, c := range heads[:last] {
		need := used + widths[i] + len(gap)
		switch {
		case c.Room == Always:
		case t.Screen.Width == 0:
			if c.Room == Roomy {
				continue
			}
		case full, c.Room == Usual && need+least > t.Screen.Width, c.Room == Roomy && need+widths[last] > t.Screen.Width:
			full = true
			continue
		}
		used = need
		places = append(places, i)
	}
	places = append(places, last)
	if t.Screen.Width > 0 {
		left = max(t.Screen.Width-used, least)
	}
	return at(heads, places), Each(lines, func(line []string) []string { return at(line, places) }), left
}

// at are the elements of a list in some places.
func at[T any](list []T, places []int) []T {
	return Each(places, func(place int) T { return list[place] })
}

// widthsOf are the widths of the columns of a table.
func widthsOf(lines [][]string) []int {
	var widths []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(cell))
		}
	}
	return widths
}

// oneLine is a text without what would break the line of a table.
func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(shell.Printable(text))
}

// columns is how many columns of a terminal a text takes.
func columns(text string) (n int) {
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Mn, r):
		case unicode.In(r, unicode.Hangul, unicode.Han, unicode.Hiragana, unicode.Katakana), r >= 0xFF01 && r <= 0xFF60:
			n += 2
		default:
			n++
		}
	}
	return n
}
