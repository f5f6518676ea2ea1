package top

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The least size of a terminal that has room for anything.
const (
	leastWidth  = 60
	leastHeight = 6
)

// barColumns is how wide a bar is.
const barColumns = 8

// unknown stands for what is not known.
const unknown = "-"

// Screen returns what the terminal shows: at most as many lines as it has rows, none of
// them wider than it is. now is the time of day, in the zone of the user.
func (v *View) Screen(now time.Time) string {
	switch {
	case !v.paused:
		v.still = time.Time{}
	case v.still.IsZero():
		v.still = now
	default:
		now = v.still
	}
	var lines []string
	switch {
	case v.Width < leastWidth || v.Height < leastHeight:
		lines = []string{fmt.Sprintf("lpuctl top needs %dx%d", leastWidth, leastHeight)}
	case v.help:
		lines = helpLines()
	case v.shown == nil:
		lines = []string{"lpuctl top: looking for LPUs"}
		if v.Fault != "" {
			lines = append(lines, v.Fault)
		}
	default:
		lines = v.table(now)
	}
	if len(lines) > v.Height {
		lines = lines[:v.Height]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, v.Width, "")
	}
	return strings.Join(lines, "\n")
}

// table are the lines of the usual screen: what stands above the LPUs, the LPUs, their
// history, and what stands below.
func (v *View) table(now time.Time) []string {
	head := []string{v.title(now), v.subtitle(now)}
	foot := append(v.cables(), v.keys())
	rows := v.rows()
	room := v.Height - len(head) - len(foot) - 1 // without the header of the LPUs
	both := room >= 2*len(rows)+2
	fits := min(len(rows), max(1, room))
	v.first = max(0, min(v.first, len(rows)-fits))
	seen := rows[v.first : v.first+fits]

	lines := head
	if both || !v.graphs {
		lines = append(lines, v.lpus(seen, now)...)
	}
	if both {
		lines = append(lines, "")
	}
	if both || v.graphs {
		lines = append(lines, v.graph(seen)...)
	}
	for len(lines) < v.Height-len(foot) {
		lines = append(lines, "")
	}
	return append(lines, foot...)
}

// Plain returns a look as a text of 80 columns, without a history.
func (v *View) Plain(look *Look, now time.Time) string {
	v.Width, v.shown, v.Style.Colour = 80, look, false
	lines := append([]string{v.title(now), v.subtitle(now)}, v.lpus(v.rows(), now)...)
	lines = append(lines, v.cables()...)
	for i, line := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(line, v.Width, ""), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// title is the first line: which machine, how many LPUs in which health, and when.
func (v *View) title(now time.Time) string {
	counts := map[discovery.Health]int{}
	for _, l := range v.shown.LPUs {
		counts[l.Health]++
	}
	text := fmt.Sprintf("%d LPUs", len(v.shown.LPUs))
	if len(v.shown.LPUs) == 1 {
		text = "1 LPU"
	}
	for _, health := range []discovery.Health{discovery.Healthy, discovery.Unhealthy, discovery.HealthUnknown} {
		if counts[health] > 0 {
			text += fmt.Sprintf(", %d %s", counts[health], health)
		}
	}
	left := v.cell("lpuctl top  "+cmp.Or(v.shown.Node, "this node")+"  "+text, v.Width-9)
	return v.Style.paint(bold, left) + " " + v.shown.At.In(now.Location()).Format(time.TimeOnly)
}

// subtitle is the second line: where the readings come from and how old they are, and what
// of the view is not as usual.
func (v *View) subtitle(now time.Time) string {
	parts := []string{"readings: " + v.source(now)}
	if v.Order != ByRing && v.Order != "" {
		parts = append(parts, "sort: "+string(v.Order))
	}
	if v.Filter != "" || v.typing {
		parts = append(parts, "filter: "+v.Filter)
	}
	if v.first > 0 {
		parts = append(parts, fmt.Sprintf("from LPU %d on", v.first+1))
	}
	if v.Fault != "" {
		parts = append(parts, v.Fault)
	}
	text := v.cell(shell.Printable(strings.Join(parts, "; ")), v.Width)
	switch {
	case v.paused:
		return v.Style.paint(reverse, "PAUSED") + " " + ansi.Truncate(text, v.Width-7, "")
	case v.Fault != "":
		return v.Style.paint(red, text)
	}
	return text
}

// source says who has read the sensors, and how long the oldest reading is ago.
func (v *View) source(now time.Time) string {
	var oldest *Readings
	for _, l := range v.shown.LPUs {
		if r := l.Readings; r != nil && (oldest == nil || r.At.Before(oldest.At)) {
			oldest = r
		}
	}
	if oldest == nil {
		return unknown
	}
	return fmt.Sprintf("%s, %s ago", oldest.Source, age(now.Sub(oldest.At)))
}

// lpus are the header and the lines of the LPUs.
func (v *View) lpus(rows []*LPU, now time.Time) []string {
	// All but the holder.
	const columns = 5 + 1 + barColumns + 5 + 1 + barColumns + 5 + 1 + 7 + 1 + 12 + 1 + 1 + 5
	holder := v.Width - columns
	line := func(name, temperature, power, link, state, who, since string) string {
		return strings.Join([]string{name, temperature, power, link, state, who, since}, " ")
	}
	lines := []string{v.Style.paint(bold, line(v.cell("LPU", 5), v.cell("TEMPERATURE", barColumns+5), v.cell("POWER", barColumns+5),
		v.cell("LINK", 7), v.cell("HEALTH", 12), v.cell("HOLDER", holder), "SINCE"))}
	for _, l := range rows {
		celsius, limit := l.celsius(), 0.0
		if t := l.Readings.Hottest(); t != nil {
			limit = t.Limit()
		}
		watts, most := l.Readings.Power(), 0.0
		if l.Readings != nil && l.Readings.LimitWatts != nil {
			most = *l.Readings.LimitWatts
		}
		since := unknown
		if l.Holder != nil && !l.Holder.Since.IsZero() {
			since = age(now.Sub(l.Holder.Since))
		}
		lines = append(lines, line(v.cell(l.Name, 5), v.gauge(celsius, limit, "C"), v.gauge(watts, most, "W"), v.cell(linkText(l.Link), 7),
			v.Style.paint(l.colour(), v.cell(l.state(), 12)), v.cell(cmp.Or(l.holder(), unknown), holder), fmt.Sprintf("%5s", since)))
	}
	return lines
}

// graph are the header and the lines of the history of LPUs. Memory in use and the busy
// share of the time are not known: docs/health-notes.md says why.
func (v *View) graph(rows []*LPU) []string {
	const others = 5 + 1 + 1 + 8 + 1 + 1 + 9 + 1 + 4 + 1 + 4 // all but the two lines
	width := min(historySteps, (v.Width-others)/2)
	lines := []string{v.Style.paint(bold, strings.Join([]string{
		v.cell("LPU", 5), v.cell("TEMP, 10 MIN", width), v.cell("RANGE", 8), v.cell("POWER, 10 MIN", width), v.cell("RANGE", 9), "MEM ", "BUSY",
	}, " "))}
	for _, l := range rows {
		s := v.history.of(l.Address)
		lines = append(lines, strings.Join([]string{
			v.cell(l.Name, 5), v.Style.spark(inColumns(s.celsius[:], width)), v.cell(rangeText(s.celsius[:], "C"), 8),
			v.Style.spark(inColumns(s.watts[:], width)), v.cell(rangeText(s.watts[:], "W"), 9), v.cell(unknown, 4), unknown,
		}, " "))
	}
	return lines
}

// cables are lines about rings of which a cable does not work.
func (v *View) cables() (lines []string) {
	for _, r := range v.shown.Rings {
		if len(r.DeadLinks) == 0 {
			continue
		}
		words := []string{fmt.Sprintf("%s: %d of %d cables down:", r.ID, len(r.DeadLinks), len(r.Cables()))}
		for _, cable := range r.DeadLinks {
			words = append(words, cable[0]+"-"+cable[1])
		}
		text := strings.Join(words, " ")
		lines = append(lines, v.Style.paint(red, v.cell(text, v.Width)))
	}
	return lines
}

// keys is the last line.
func (v *View) keys() string {
	if v.typing {
		return v.cell("filter: "+v.Filter+"_   enter: keep, esc: all LPUs", v.Width)
	}
	return v.Style.paint(dim, v.cell("q quit  ? help  space pause  / filter  sort: ring name health temp power hOlder", v.Width))
}

// cell is a text in a number of columns. What does not fit is cut off, with a mark.
func (v *View) cell(text string, columns int) string {
	mark := "~"
	if v.Style.UTF8 {
		mark = "…"
	}
	text = ansi.Truncate(strings.NewReplacer("\n", " ", "\t", " ").Replace(shell.Printable(text)), columns, mark)
	return text + strings.Repeat(" ", max(0, columns-ansi.StringWidth(text)))
}

// gauge is a value with a bar against its limit. Without a limit there is no bar.
func (v *View) gauge(value *float64, limit float64, unit string) string {
	if value == nil {
		return fmt.Sprintf("%*s", barColumns+5, unknown)
	}
	number := fmt.Sprintf("%.0f%s", *value, unit)
	if limit <= 0 {
		return fmt.Sprintf("%*s", barColumns+5, number)
	}
	colour := green
	switch part := share(*value, limit); {
	case part >= 1:
		colour = red
	case part >= 0.85:
		colour = yellow
	}
	return v.Style.paint(colour, v.Style.bar(*value, limit, barColumns)) + fmt.Sprintf("%5s", number)
}

// state is the health as the screen has it; an exclamation mark says that there is a
// warning.
func (l *LPU) state() string {
	if l.Health == discovery.Healthy && l.Reasons.MoreThanNotes() {
		return l.State + " !"
	}
	return l.State
}

func (l *LPU) colour() string { return []string{red, yellow, yellow, green}[l.badness()] }

// linkText is a link in few columns: "8.0x16".
func linkText(l *discovery.Link) string {
	if l == nil || l.SpeedGTs == 0 || l.Width == 0 {
		return unknown
	}
	return fmt.Sprintf("%.1fx%d", l.SpeedGTs, l.Width)
}

// rangeText is the lowest and the highest of some values.
func rangeText(values []*float64, unit string) string {
	low, high := span(values)
	switch {
	case low == nil:
		return unknown
	case math.Round(*low) == math.Round(*high):
		return fmt.Sprintf("%.0f%s", *low, unit)
	}
	return fmt.Sprintf("%.0f-%.0f%s", *low, *high, unit)
}

// age is a span of time in at most five columns.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour:
		return fmt.Sprintf("%dh%02d", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// helpLines are the screen of the help.
func helpLines() []string {
	return strings.Split(strings.TrimSpace(`
lpuctl top: the LPUs of this node, in the order of their ring

  r n h t p o   sort by ring, name, health, temperature, power, holder
  / TEXT        only LPUs that have TEXT in a cell; enter keeps it, esc ends it
  space         the screen stays as it is; again: it goes on
  tab           LPUs or history, where there is no room for both
  up down       the LPUs above and below
  q             quit

A bar is full at the sensor's own limit (crit, or max); without one is none.
A line of the history goes from the lowest to the highest of its ten minutes.
HEALTH: ! is a warning; lpuctl describe LPU says which.
HOLDER: a lease (l7), a pod, a container, or the first process with the node;
        ? says that there may be processes that this user cannot see.
-       is not known.

Any key goes back.`), "\n")
}

// sensed are findings that are made of what sensors say.
func sensed(id finding.ID) bool {
	switch id {
	case finding.Firewall, finding.NotCalibrated, finding.ECCUncorrectable, finding.Hot:
		return true
	}
	return false
}
