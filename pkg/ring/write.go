package ring

import (
	"fmt"
	"strconv"
	"strings"
)

// WriteHyperdex writes a cabling in HyperDex's format: cards are indices, and the layout is that of jsoncpp, byte for
// byte. The format names cards in links only: if a card has no link, [Parse] reports ring-count for what is written.
func WriteHyperdex(c *Cabling) []byte {
	n := 0
	for _, r := range c.Rings {
		n += len(r.Cards)
	}
	var links []written
	for _, l := range c.links() {
		links = append(links, written{from: l[0], to: l[1]})
	}
	return writeHyperdex(links, n, 0)
}

// written is a link as it is written.
type written struct {
	from, to int
	left     bool // to is on the left of from
}

// writeHyperdex writes links for count cards; own is how many of them a container has, 0: it is not
// the table of a container.
func writeHyperdex(links []written, count, own int) []byte {
	network := "[]"
	if len(links) > 0 {
		var items []string
		for _, l := range links {
			side := right
			if l.left {
				side = "Left"
			}
			items = append(items,
				fmt.Sprintf("\t\t{\n\t\t\t\"direction\" : %q,\n\t\t\t\"dst_id\" : %d,\n\t\t\t\"src_id\" : %d\n\t\t}", side, l.to, l.from))
		}
		network = "\n\t[\n" + strings.Join(items, ",\n") + "\n\t]"
	}
	container := ""
	if own > 0 {
		container = fmt.Sprintf("\t%q : %d,\n", containerKey, own)
	}
	return fmt.Appendf(nil, "{\n\t\"network\" : %s,\n%s\t\"num_device\" : %d\n}\n", network, container, count)
}

// WriteLpuctl writes a cabling in our own format, as YAML. ids has the PCI address, name or serial number of each card.
// With PCI addresses the table is also the list of the cards that the server should have.
func WriteLpuctl(c *Cabling, ids []string) []byte {
	var rings, links string
	for _, r := range c.Rings {
		if r.Closed && (len(r.Cards) != 2 || len(r.Links) != 2) {
			rings += "- [" + strings.Join(ringIDs(r, ids), ", ") + "]\n"
			continue
		}
		for _, l := range r.Links {
			if r.Closed { // two cables: the same link twice, because a link and its reverse are one cable described from both ends
				l = r.Links[0]
			}
			links += fmt.Sprintf("- {a: %q, b: %q}\n", ids[l[0]], ids[l[1]])
		}
	}
	text := "apiVersion: " + apiVersion + "\nkind: " + kind + "\n"
	if rings != "" {
		text += "rings:\n" + rings
	}
	if links != "" {
		text += "links:\n" + links
	}
	return []byte(text)
}

// ringIDs is the quoted ids of a closed ring, in the direction of its links.
func ringIDs(r Ring, ids []string) (quoted []string) {
	for i, card := range r.Cards {
		switch n := len(r.Links); {
		case i < n:
			card = r.Links[i][0]
		case n > 0: // the second of two cards
			card = r.Links[0][1]
		}
		quoted = append(quoted, strconv.Quote(ids[card]))
	}
	return quoted
}
