package topology

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes in the legend, in pixels: a sample of a box or cable, and an entry.
const (
	sampleWidth, sampleHeight = 36.0, 16.0
	entryWidth, entryHeight   = 320.0, 24.0
)

// SVG returns the scene as a picture in one file: it needs no script, font or style
// sheet. Below the groups is a legend of states, cables and switches.
func (s *Scene) SVG() string {
	var p picture
	for _, n := range s.nodes {
		if n.next != nil {
			p.cable(n.x, n.y, n.next.x, n.next.y, n.dead)
		}
	}
	for _, n := range s.nodes {
		p.box(n.x, n.y, boxWidth, boxHeight, n.look())
		weight := `font-weight="bold"`
		lines := n.lines()
		for i, line := range lines {
			p.text(n.x, n.y+16*float64(i)-8*float64(len(lines))+12, weight, line)
			weight = ""
		}
	}
	for _, g := range s.groups {
		p.text(g.x, g.y, fmt.Sprintf(`font-size="%g"`, titleSize), g.title)
	}
	p.legend(s)
	width := max(s.width, 2*entryWidth)
	height := s.height + float64(max(len(looks())+2, len(s.switches)))*entryHeight
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f"
 font-family="sans-serif" font-size="%g" text-anchor="middle">
<title>How the LPUs of this node are connected</title>
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, width, height, textSize, p.String())
}

// legend explains states and cables in one column, and switches in another.
func (p *picture) legend(s *Scene) {
	entry := func(column, row int, text string) (x, y float64) {
		x, y = gap+sampleWidth/2+float64(column)*entryWidth, s.height+float64(row)*entryHeight
		p.text(x+sampleWidth/2+10, y+4, `text-anchor="start"`, text)
		return x, y
	}
	for i, k := range looks() {
		x, y := entry(0, i, k.meaning)
		p.box(x, y, sampleWidth, sampleHeight, k)
	}
	for i, text := range []string{"cable", "dead cable: an end is not usable"} {
		x, y := entry(0, len(looks())+i, text)
		p.cable(x-sampleWidth/2, y, x+sampleWidth/2, y, i == 1)
	}
	for i, a := range s.switches {
		entry(1, i, fmt.Sprintf("S%d: PCIe switch %s", i, a))
	}
}

// picture collects elements of an SVG.
type picture struct{ strings.Builder }

// text is centred at x, or starts there if the attributes say so; y is its baseline.
func (p *picture) text(x, y float64, attributes, text string) {
	fmt.Fprintf(p, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes)
	_ = xml.EscapeText(p, []byte(text)) // a Builder takes everything
	p.WriteString("</text>\n")
}

func (p *picture) box(x, y, width, height float64, k look) {
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%g" height="%g" rx="6" fill="%s" stroke="#24292f" stroke-width="1.5" stroke-dasharray="%s"/>
`, x-width/2, y-height/2, width, height, k.fill, k.dashes)
}

// cable is a line. A dead one is dashed and red, and crossed out in its middle.
func (p *picture) cable(x1, y1, x2, y2 float64, dead bool) {
	color, dashes := "#57606a", "none"
	if dead {
		color, dashes = "#cf222e", "6 5"
		p.text((x1+x2)/2, (y1+y2)/2+9, `font-size="26" font-weight="bold" fill="#cf222e"`, "×")
	}
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3" stroke-dasharray="%s"/>
`, x1, y1, x2, y2, color, dashes)
}
