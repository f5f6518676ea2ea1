package topology_test

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/topology"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// machine is a simulated node, and what is true of it.
type machine struct {
	node    simulate.Node
	table   string // content of a ring table that is put in place of the simulated one
	removed string // a card that is pulled out
	cables  int
	dead    string
}

func machines() map[string]machine {
	orion := func(lpus int, faults ...simulate.Fault) simulate.Node {
		return simulate.Node{Profile: "orion", LPUs: lpus, Faults: faults}
	}
	byIndex := func(rings int) string {
		var lists []string
		for i := range rings {
			at := 8 * i
			lists = append(lists, fmt.Sprintf("[%d, %d, %d, %d, %d, %d, %d, %d]", at, at+1, at+2, at+3, at+4, at+5, at+6, at+7))
		}
		return "rings: [" + strings.Join(lists, ", ") + "]"
	}
	return map[string]machine{
		"one LPU":      {node: orion(1)},
		"a ring of 2":  {node: orion(2, simulate.Fault{Name: "unbound", Index: 1}), cables: 1, dead: "lpu0-lpu1"},
		"a ring of 8":  {node: orion(8, simulate.Fault{Name: "unbound", Index: 2}), cables: 8, dead: "lpu1-lpu2 lpu2-lpu3"},
		"a ring of 16": {node: orion(16), table: strings.Replace(byIndex(2), "], [", ", ", 1), cables: 16},
		"two rings":    {node: orion(16, simulate.Fault{Name: "vfio", Index: 8}), cables: 16, dead: "lpu8-lpu15 lpu8-lpu9"},
		"64 LPUs":      {node: simulate.Node{Profile: "lpu", LPUs: 64}, table: byIndex(8), cables: 64},
		"a chain": {
			node: orion(3, simulate.Fault{Name: "unbound", Index: 2}), table: "links: [{a: lpu0, b: lpu1}, {a: lpu1, b: lpu2}]",
			cables: 2, dead: "lpu1-lpu2",
		},
		"one beside a ring": {node: orion(4), table: "rings: [[lpu0, lpu1, lpu2], [lpu3]]", cables: 3},
		"an absent card": {
			node: orion(4), table: "rings: [[\"0000:43:00\", \"0000:44:00\", \"0000:45:00\", \"0000:46:00\"]]", removed: "0000:44:00",
			cables: 4, dead: "lpu0-lpu1 lpu1-lpu2",
		},
		"no table":       {node: simulate.Node{Profile: "lpu", LPUs: 9}},
		"no PCIe switch": {node: simulate.Node{Profile: "edge"}, cables: 1},
		"faults": {
			node: orion(8, simulate.Fault{Name: "recovery", Index: 0}, simulate.Fault{Name: "numa-unknown", Index: 3},
				simulate.Fault{Name: "wide-domain", Index: 7}, simulate.Fault{Name: "unbound", Index: 4}),
			cables: 8, dead: "lpu0-lpu1 lpu0-lpu7 lpu3-lpu4 lpu4-lpu5",
		},
	}
}

func (m machine) scan(t *testing.T) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := m.node.Write(root); err != nil {
		t.Fatal(err)
	}
	if m.table != "" {
		path := filepath.Join(root, "etc/lpuctl/ring.yaml")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		table := "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\n" + m.table + "\n"
		if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if m.removed != "" {
		for _, function := range []string{".0", ".1"} {
			if err := os.Remove(filepath.Join(root, "sys/bus/pci/devices", m.removed+function)); err != nil {
				t.Fatal(err)
			}
		}
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// pair is two LPUs in the order of their indices, whoever is named first.
func pair(a, b string) string {
	if len(a) > len(b) || len(a) == len(b) && a > b {
		a, b = b, a
	}
	return a + "-" + b
}

// graph is the cables that a document shows: true for the dead ones.
type graph map[string]bool

func (g graph) dead() string {
	dead := []string{}
	for cable, isDead := range g {
		if isDead {
			dead = append(dead, cable)
		}
	}
	slices.Sort(dead)
	return strings.Join(dead, " ")
}

// distance is the least number of living cables between two LPUs; 0 if there is no way.
func (g graph) distance(from, to string) int {
	reached := map[string]int{from: 0}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for cable, dead := range g {
			a, b, _ := strings.Cut(cable, "-")
			if b == queue[0] {
				a, b = b, a
			}
			if _, seen := reached[b]; a == queue[0] && !dead && !seen {
				reached[b] = reached[a] + 1
				queue = append(queue, b)
			}
		}
	}
	return reached[to]
}

func graphOfDot(dot string) graph {
	g := graph{}
	for _, m := range regexp.MustCompile(`(lpu\d+) -- (lpu\d+)(.*);`).FindAllStringSubmatch(dot, -1) {
		g[pair(m[1], m[2])] = strings.Contains(m[3], "dashed")
	}
	return g
}

func deadInJSON(t *testing.T, inv *discovery.Inventory) string {
	t.Helper()
	data, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Rings []struct{ DeadLinks [][2]string }
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	g := graph{}
	for _, r := range document.Rings {
		for _, d := range r.DeadLinks {
			g[pair(d[0], d[1])] = true
		}
	}
	return g.dead()
}

// drawn is all that is drawn of one inventory.
type drawn struct {
	inv       *discovery.Inventory
	svg       *picture
	dot, text string
	header    []string
	rows      [][]string
}

func TestDrawings(t *testing.T) {
	for name, m := range machines() {
		t.Run(name, func(t *testing.T) {
			inv := m.scan(t)
			scene := topology.New(inv)
			d := drawn{inv: inv, svg: parse(t, scene.SVG()), dot: scene.Dot(), text: scene.Text()}
			d.header, d.rows = scene.Matrix()
			d.checkCables(t, m)
			d.checkMatrix(t)
			d.checkStates(t)
			d.checkPositions(t)
			d.svg.checkSpace(t)
			d.svg.checkLegend(t)
		})
	}
}

// checkCables: whatever a scene is shown as, the same cables are dead.
func (d drawn) checkCables(t *testing.T, m machine) {
	t.Helper()
	for document, g := range map[string]graph{"dot": graphOfDot(d.dot), "svg": d.svg.graph(t)} {
		if len(g) != m.cables || g.dead() != m.dead {
			t.Errorf("%s has %d cables, want %d; dead are %q, want %q", document, len(g), m.cables, g.dead(), m.dead)
		}
	}
	if dead := deadInJSON(t, d.inv); dead != m.dead {
		t.Errorf("JSON has %q, want %q", dead, m.dead)
	}
	if crosses := strings.Count(strings.ReplaceAll(d.text, "╳╳", "╳"), "╳"); crosses != len(strings.Fields(m.dead)) {
		t.Errorf("%d dead cables are drawn for the terminal:\n%s", crosses, d.text)
	}
}

// checkMatrix: Rn is the least number of living cables in the graph.
func (d drawn) checkMatrix(t *testing.T) {
	t.Helper()
	g := graphOfDot(d.dot)
	for i, row := range d.rows {
		for j, cell := range row[1 : len(d.rows)+1] {
			hops := 0
			if strings.HasPrefix(cell, "R") {
				hops = int(number(cell[1:]))
			}
			if want := g.distance(row[0], d.header[j+1]); hops != want || (i == j) != (cell == "X") {
				t.Errorf("the matrix has %s from %s to %s, which are %d cables apart", cell, row[0], d.header[j+1], want)
			}
		}
	}
}

// checkStates: every drawing says the state of every LPU in words, and the SVG by the border too.
func (d drawn) checkStates(t *testing.T) {
	t.Helper()
	for i := range d.inv.LPUs {
		l := &d.inv.LPUs[i]
		label := l.Name + "\n" + l.Address.String() + "\n" + l.State()
		b := d.svg.box(l.Name)
		if !strings.HasPrefix(b.says(), label) || !strings.Contains(d.dot, "label="+strings.TrimSuffix(strconv.Quote(label), `"`)) {
			t.Errorf("no box says %q", label)
		}
		if !regexp.MustCompile(l.Name + ` +` + l.State() + `( |\n)`).MatchString(d.text) {
			t.Errorf("%s is not %s in\n%s", l.Name, l.State(), d.text)
		}
		if (b.dashes == "none") != l.Usable {
			t.Errorf("the border of %s has dashes %q, usable is %v", l.Name, b.dashes, l.Usable)
		}
	}
}

func (p *picture) checkLegend(t *testing.T) {
	t.Helper()
	if p.title == "" {
		t.Error("there is no title")
	}
	for _, word := range []string{"usable", "not usable", "absent", "cable", "dead cable: an end is not usable"} {
		if !slices.ContainsFunc(p.texts, func(s shape) bool { return s.text == word }) {
			t.Errorf("the legend lacks %q", word)
		}
	}
	samples := p.samples()
	if different := slices.Compact(slices.Sorted(slices.Values(samples))); len(samples) != 3 || len(different) != 3 {
		t.Errorf("the borders of the states are %q", samples)
	}
}

// checkPositions: dot has all where the SVG has it, and lpu0 at the top.
func (d drawn) checkPositions(t *testing.T) {
	t.Helper()
	found := regexp.MustCompile(`(lpu\d+) \[.* pos="(-?\d+),(-?\d+)!"`).FindAllStringSubmatch(d.dot, -1)
	if len(found) != len(d.inv.LPUs) {
		t.Errorf("%d LPUs have a position", len(found))
	}
	_, top := d.svg.box("lpu0").centre()
	for _, m := range found {
		x, y := d.svg.box(m[1]).centre()
		if math.Abs(number(m[2])-x) > 1 || math.Abs(number(m[3])+y) > 1 || y < top {
			t.Errorf("%s is at %s,%s in dot, and at %.0f,%.0f in SVG, where lpu0 is at %.0f", m[1], m[2], m[3], x, y, top)
		}
	}
}

// TestTextFromOutside: what a name or a state contains changes nothing in the structure of a picture.
func TestTextFromOutside(t *testing.T) {
	const odd = `<a>&"`
	inv := &discovery.Inventory{LPUs: []discovery.LPU{{
		Name: "lpu0", Reasons: finding.List{{Severity: finding.Error, ID: odd}},
	}}}
	scene := topology.New(inv)
	if got := parse(t, scene.SVG()).box("lpu0").says(); !strings.Contains(got, odd) {
		t.Errorf("the box says %q", got)
	}
	if want := `<a>&\"`; !strings.Contains(scene.Dot(), want) {
		t.Errorf("no %s in %s", want, scene.Dot())
	}
}

func TestNothingToDraw(t *testing.T) {
	scene := topology.New(&discovery.Inventory{})
	parse(t, scene.SVG()).checkSpace(t)
	if diff := gocmp.Diff("", scene.Text()); diff != "" {
		t.Error(diff)
	}
}

// picture is an SVG that was read back.
type picture struct {
	title         string
	boxes, texts  []shape
	lines         []line
	width, height float64
}

// shape is a box or a text: the space it takes.
type shape struct {
	left, top, right, bottom float64
	text, dashes             string
	within                   []shape // texts in a box
}

type line struct {
	x1, y1, x2, y2 float64
	dashes         string
}

func number(text string) float64 {
	var n float64
	_, _ = fmt.Sscan(text, &n)
	return n
}

// parse reads an SVG. Every element must be one of those that are known to be drawn everywhere.
func parse(t *testing.T, svg string) *picture {
	t.Helper()
	p := &picture{}
	size := 0.0
	var at map[string]string
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		start, isStart := token.(xml.StartElement)
		if !isStart {
			continue
		}
		at = map[string]string{}
		for _, a := range start.Attr {
			at[a.Name.Local] = a.Value
		}
		x, y, w, h := number(at["x"]), number(at["y"]), number(at["width"]), number(at["height"])
		var text string
		switch start.Name.Local {
		case "svg":
			p.width, p.height, size = w, h, number(at["font-size"])
		case "title":
			if err := d.DecodeElement(&p.title, &start); err != nil {
				t.Fatal(err)
			}
		case "rect":
			if at["width"] != "100%" {
				p.boxes = append(p.boxes, shape{left: x, top: y, right: x + w, bottom: y + h, dashes: at["stroke-dasharray"]})
			}
		case "line":
			p.lines = append(p.lines, line{number(at["x1"]), number(at["y1"]), number(at["x2"]), number(at["y2"]), at["stroke-dasharray"]})
		case "text":
			if err := d.DecodeElement(&text, &start); err != nil {
				t.Fatal(err)
			}
			p.texts = append(p.texts, textShape(x, y, cmp.Or(number(at["font-size"]), size), at["text-anchor"], text))
		default:
			t.Errorf("element %s", start.Name.Local)
		}
	}
	for i := range p.boxes {
		for _, s := range p.texts {
			if b := &p.boxes[i]; b.contains(s) {
				b.within = append(b.within, s)
			}
		}
	}
	return p
}

// textShape is the space of a text in a font as wide as fonts are.
func textShape(x, y, size float64, anchor, text string) shape {
	width := 0.65 * size * float64(len([]rune(text)))
	if anchor != "start" {
		x -= width / 2
	}
	return shape{left: x, right: x + width, top: y - 0.75*size, bottom: y + 0.25*size, text: text}
}

func (s shape) overlaps(o shape) bool {
	return s.left < o.right && o.left < s.right && s.top < o.bottom && o.top < s.bottom
}

func (s shape) contains(o shape) bool {
	return s.left <= o.left && o.right <= s.right && s.top <= o.top && o.bottom <= s.bottom
}

func (s shape) centre() (x, y float64) { return (s.left + s.right) / 2, (s.top + s.bottom) / 2 }

// says is the text in a box, a line each.
func (s shape) says() string {
	lines := []string{}
	for _, text := range s.within {
		lines = append(lines, text.text)
	}
	return strings.Join(lines, "\n")
}

// box is the box of an LPU.
func (p *picture) box(name string) shape {
	i := slices.IndexFunc(p.boxes, func(b shape) bool { return len(b.within) > 0 && b.within[0].text == name })
	if i < 0 {
		return shape{}
	}
	return p.boxes[i]
}

// samples are the borders that the legend shows.
func (p *picture) samples() []string {
	var dashes []string
	for _, b := range p.boxes {
		if len(b.within) == 0 {
			dashes = append(dashes, b.dashes)
		}
	}
	return dashes
}

// graph is the cables between boxes: a line from one centre to another, dead if it is dashed and crossed out.
func (p *picture) graph(t *testing.T) graph {
	t.Helper()
	g := graph{}
	for _, l := range p.lines {
		var ends []string
		crossed := slices.ContainsFunc(p.texts, func(s shape) bool {
			x, y := s.centre()
			return s.text == "×" && math.Hypot(x-(l.x1+l.x2)/2, y-(l.y1+l.y2)/2) < 5
		})
		if crossed != (l.dashes != "none") {
			t.Errorf("line %v is dashed or crossed out, and not both", l)
		}
		for _, b := range p.boxes {
			x, y := b.centre()
			if len(b.within) > 0 && (math.Hypot(x-l.x1, y-l.y1) < 1 || math.Hypot(x-l.x2, y-l.y2) < 1) {
				ends = append(ends, b.within[0].text)
			}
		}
		if len(ends) == 2 {
			g[pair(ends[0], ends[1])] = crossed
		}
	}
	return g
}

// checkSpace looks whether anything covers anything else or leaves the picture. Boxes are drawn over the cables that end in
// them.
func (p *picture) checkSpace(t *testing.T) {
	t.Helper()
	all := slices.Concat(p.boxes, p.texts)
	for i, a := range all {
		if !(shape{right: p.width, bottom: p.height}).contains(a) {
			t.Errorf("%q at %.0f,%.0f leaves the picture", a.says()+a.text, a.left, a.top)
		}
		for _, b := range all[i+1:] {
			if a.overlaps(b) && (a.text != "" || !a.contains(b)) {
				t.Errorf("%q covers %q", a.says()+a.text, b.says()+b.text)
			}
		}
	}
	for _, l := range p.lines {
		for _, s := range all {
			if s.text == "×" || p.isInBox(s) || s.endOf(l) {
				continue
			}
			if s.crossedBy(l) {
				t.Errorf("a cable crosses %q", s.says()+s.text)
			}
		}
	}
}

func (p *picture) isInBox(text shape) bool {
	return slices.ContainsFunc(p.boxes, func(b shape) bool { return text.text != "" && b.contains(text) })
}

func (s shape) endOf(l line) bool {
	x, y := s.centre()
	return s.text == "" && (math.Hypot(x-l.x1, y-l.y1) < 1 || math.Hypot(x-l.x2, y-l.y2) < 1)
}

func (s shape) crossedBy(l line) bool {
	const steps = 500
	for i := range steps + 1 {
		f := float64(i) / steps
		x, y := l.x1+f*(l.x2-l.x1), l.y1+f*(l.y2-l.y1)
		if s.overlaps(shape{left: x, right: x, top: y, bottom: y}) {
			return true
		}
	}
	return false
}
