package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	plotWidth, plotHeight = 760, 380
	highlight, muted      = "#c2410c", "#64748b"
)

func svg(title, body string, height int) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="20" y="26" font-size="15" font-weight="bold">%s</text>
%s</svg>
`, plotWidth, height, title, body)
}

// bar is one rule's share in percent.
type bar struct {
	name  string
	share figure
}

// barsOf are the rules that accept whatever there is room for, the best last.
func barsOf(results map[string][][]outcome, cell int) []bar {
	var all []bar
	for _, p := range policies() {
		if p.name != former && p.name != "1-or-ALL" && !strings.HasPrefix(p.name, "buddy") {
			all = append(all, bar{p.name, over(results[p.name][cell], outcome.connectedShare)})
		}
	}
	slices.SortStableFunc(all, func(a, b bar) int { return int(1000 * (a.share.mean - b.share.mean)) })
	return all
}

func bars(title string, all []bar) string {
	const left, row, scale = 230, 28, 4.6
	var b strings.Builder
	for i, one := range all {
		colour := muted
		if one.name == lpuctl {
			colour = highlight
		}
		y := 46 + row*i
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+15, one.name)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="20" fill="%s"/>`+"\n", left, y, one.share.mean*scale, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.1f</text>`+"\n", left+one.share.mean*scale+6, y+15, one.share.mean)
	}
	return svg(title, b.String(), 60+row*len(all))
}

type point struct{ x, y float64 }

type line struct {
	name   string
	points []point
}

// curves draws lines over a load of 0.3 to 1.2 and shares of 50 to 100 percent.
func curves(title string, lines []line) string {
	x := func(load float64) float64 { return 60 + (load-.3)/.9*480 }
	y := func(share float64) float64 { return plotHeight - 40 - (share-50)/50*(plotHeight-90) }
	var b strings.Builder
	for share := 50.0; share <= 100; share += 10 {
		fmt.Fprintf(&b, `<line x1="60" x2="540" y1="%.1f" y2="%.1f" stroke="#e2e8f0"/>`, y(share), y(share))
		fmt.Fprintf(&b, `<text x="52" y="%.1f" text-anchor="end">%.0f</text>`+"\n", y(share)+4, share)
	}
	for load := .3; load < 1.25; load += .3 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.1f</text>`+"\n", x(load), plotHeight-20, load)
	}
	fmt.Fprintf(&b, `<text x="300" y="%d" text-anchor="middle">load</text>`+"\n", plotHeight-4)
	slices.SortFunc(lines, func(a, b line) int { return int(1000 * (last(b) - last(a))) })
	for i, l := range lines {
		colour, width := fmt.Sprintf("hsl(%d 60%% 40%%)", 150+60*i), 1.5
		if l.name == lpuctl {
			colour, width = highlight, 3
		}
		var at []string
		for _, p := range l.points {
			at = append(at, fmt.Sprintf("%.1f,%.1f", x(p.x), y(p.y)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"/>`+"\n", strings.Join(at, " "), colour, width)
		labelY := 60 + 22*float64(i)
		fmt.Fprintf(&b, `<line x1="560" x2="580" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`, labelY, labelY, colour, width)
		fmt.Fprintf(&b, `<text x="586" y="%.1f">%s</text>`+"\n", labelY+4, l.name)
	}
	return svg(title, b.String(), plotHeight)
}

func last(l line) float64 { return l.points[len(l.points)-1].y }
