package top

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Order is by what the LPUs are sorted.
type Order string

// The orders. Each is the ring's among those that are equal.
const (
	ByRing        Order = "ring"
	ByName        Order = "name"
	ByHealth      Order = "health"      // the worst first
	ByTemperature Order = "temperature" // the highest first
	ByPower       Order = "power"       // the highest first
	ByHolder      Order = "holder"      // those that no one has last
)

// Orders are all orders, in the order of the help.
func Orders() []Order { return []Order{ByRing, ByName, ByHealth, ByTemperature, ByPower, ByHolder} }

// orderKeys are the keys by which an order is chosen.
func orderKeys() map[string]Order {
	return map[string]Order{"r": ByRing, "n": ByName, "h": ByHealth, "t": ByTemperature, "p": ByPower, "o": ByHolder}
}

// filterMost is how many characters a filter has at most.
const filterMost = 40

// View is what people see of the looks. It changes by their keys.
type View struct {
	Style         Style
	Width, Height int // columns and rows of the terminal
	Order         Order
	Filter        string // in lower case; only LPUs are shown that have it in a cell
	Fault         string // why the latest look failed; "": it did not

	typing  bool      // the keys are those of the filter
	paused  bool      // the screen stays as it is
	still   time.Time // the time of day of a screen that is paused; zero: not drawn yet
	help    bool
	graphs  bool // the history is shown where there is no room for both
	first   int  // the first LPU that is shown
	latest  *Look
	shown   *Look
	past    History
	history *History // that is shown
}

// Take takes the next look. While the view is paused, only the history has it.
func (v *View) Take(look *Look) {
	v.past.Add(look)
	v.latest = look
	if !v.paused || v.shown == nil {
		v.shown, v.history = look, &v.past
	}
}

// Press is one key, as its name and the text that it types. It returns true if the program
// is to end.
func (v *View) Press(key, text string) (quit bool) {
	switch {
	case key == "ctrl+c":
		return true
	case v.typing:
		v.edit(key, text)
		return false
	case v.help && key != "q":
		v.help = false
		return false
	}
	switch key {
	case "q":
		return true
	case "?":
		v.help = true
	case "/":
		v.typing = true
	case "esc":
		v.Filter = ""
	case "space":
		v.pause()
	case "tab":
		v.graphs = !v.graphs
	case "down", "j":
		v.first++ // rows bounds it
	case "up", "k":
		v.first = max(0, v.first-1)
	default:
		if order, is := orderKeys()[key]; is {
			v.Order, v.first = order, 0
		}
	}
	return false
}

// edit is a key while the filter is typed.
func (v *View) edit(key, text string) {
	switch key {
	case "enter":
		v.typing = false
	case "esc":
		v.typing, v.Filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(v.Filter)
		v.Filter = v.Filter[:len(v.Filter)-size]
	default:
		for _, r := range text {
			if unicode.IsPrint(r) && utf8.RuneCountInString(v.Filter) < filterMost {
				v.Filter += string(unicode.ToLower(r))
			}
		}
	}
	v.first = 0
}

// pause lets the screen stay as it is, or go on.
func (v *View) pause() {
	if v.paused = !v.paused; !v.paused {
		v.shown, v.history = v.latest, &v.past
		return
	}
	kept := &History{lpus: map[pci.Address]*series{}, step: v.past.step}
	for a, s := range v.past.lpus {
		still := *s
		kept.lpus[a] = &still
	}
	v.history = kept
}

// rows returns the LPUs that are shown, in their order.
func (v *View) rows() []*LPU {
	var rows []*LPU
	for i := range v.shown.LPUs {
		if l := &v.shown.LPUs[i]; l.has(v.Filter) {
			rows = append(rows, l)
		}
	}
	slices.SortStableFunc(rows, func(a, b *LPU) int { return v.Order.compare(a, b) })
	return rows
}

// has reports whether a cell of the LPU has a text, in lower case.
func (l *LPU) has(text string) bool {
	cells := []string{l.Name, l.Address.String(), l.Model, l.state(), l.holder()}
	if l.Ring != nil {
		cells = append(cells, l.Ring.ID)
	}
	return slices.ContainsFunc(cells, func(cell string) bool { return strings.Contains(strings.ToLower(cell), text) })
}

// compare compares two LPUs by an order.
func (o Order) compare(a, b *LPU) int {
	switch o {
	case ByName:
		return cmp.Compare(a.index, b.index)
	case ByHealth:
		return cmp.Compare(a.badness(), b.badness())
	case ByTemperature:
		return highFirst(a.celsius(), b.celsius())
	case ByPower:
		return highFirst(a.Readings.Power(), b.Readings.Power())
	case ByHolder:
		x, y := a.holder(), b.holder()
		return cmp.Or(compareBool(x == "", y == ""), cmp.Compare(x, y))
	case ByRing: // as they are
	}
	return 0
}

// badness is lower for what is worse.
func (l *LPU) badness() int {
	switch {
	case l.Health == discovery.Unhealthy || !l.Usable:
		return 0
	case l.Health != discovery.Healthy:
		return 1
	case l.Reasons.MoreThanNotes():
		return 2
	}
	return 3
}

func (l *LPU) celsius() *float64 {
	if t := l.Readings.Hottest(); t != nil {
		return &t.Celsius
	}
	return nil
}

// highFirst compares two values: the higher one first, and what is not known last.
func highFirst(a, b *float64) int {
	if a == nil || b == nil {
		return compareBool(a == nil, b == nil)
	}
	return cmp.Compare(*b, *a)
}

// compareBool has false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
