package topology

import "math"

// Sizes in pictures, in pixels.
const (
	boxWidth, boxHeight = 116.0, 72.0
	gap                 = 32.0 // the least space between two boxes, and around the picture
	titleHeight         = 36.0 // a title and the space below it
	titleSize, textSize = 15.0, 11.5
	inRow               = 8 // LPUs in a row that are on no ring
)

// look says how a state is drawn. The borders differ too, so that a picture is readable
// in black and white. border is a style of Graphviz, and dashes the same in SVG.
type look struct{ meaning, fill, border, dashes string }

func looks() []look {
	return []look{
		{"usable", "#c8ecd0", "solid", "none"},
		{"not usable", "#ffc0c0", "dashed", "8 5"},
		{"absent", "#ffffff", "dotted", "2 5"},
	}
}

func (n *node) look() look {
	i := 1
	switch {
	case n.Usable:
		i = 0
	case n.Absent:
		i = 2
	}
	return looks()[i]
}

// arrange sets the position of every group: a grid with as many columns as rows.
func (s *Scene) arrange() {
	columns := int(math.Ceil(math.Sqrt(float64(len(s.groups)))))
	var x, y float64
	s.height = gap
	for i, g := range s.groups {
		if i%columns == 0 {
			x, y = gap, s.height
		}
		width, height := g.arrange(x, y)
		x += width + gap
		s.width, s.height = max(s.width, x), max(s.height, y+height+gap)
	}
}

// arrange sets the positions of the title and of the members below it, and returns the
// size of the group.
func (g *group) arrange(x, y float64) (width, height float64) {
	if g.cabled() {
		width, height = g.circle()
	} else {
		width, height = g.grid()
	}
	// Wide enough for the letters of any font.
	whole := max(width, 0.65*titleSize*float64(len(g.title)))
	g.x, g.y = x+whole/2, y+titleSize
	for _, m := range g.members {
		m.x += x + (whole-width)/2
		m.y += y + titleHeight
	}
	return whole, titleHeight + height
}

// grid places the members in rows, and returns the size of the grid.
func (g *group) grid() (width, height float64) {
	for i, m := range g.members {
		m.x, m.y = boxWidth/2+float64(i%inRow)*(boxWidth+gap), boxHeight/2+float64(i/inRow)*(boxHeight+gap)
		width, height = max(width, m.x+boxWidth/2), m.y+boxHeight/2
	}
	return width, height
}

// circle places the first member at the top and the others clockwise, and returns the
// size of the circle. The boxes of two neighbours, which may lie in any direction from
// each other, are a gap apart.
func (g *group) circle() (width, height float64) {
	n := float64(len(g.members))
	radius := math.Hypot(boxWidth+gap, boxHeight+gap) / 2 / math.Sin(math.Pi/n)
	for i, m := range g.members {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / n)
		m.x, m.y = boxWidth/2+radius*(1+sin), boxHeight/2+radius*(1-cos)
	}
	return 2*radius + boxWidth, 2*radius + boxHeight
}
