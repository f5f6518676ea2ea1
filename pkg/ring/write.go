package ring

import (
	"fmt"
	"strconv"
	"strings"
)

// WriteHyperdex writes a cabling in HyperDex's format: cards are indices, and the layout is that of jsoncpp, byte for
// byte. The format names cards in links only: if a card has no link, [Parse] reports ring-count for what is written.
func WriteHyperdex(c *Cabling) []byte {
	var b strings.Builder
	links := c.links()
	b.WriteString("{\n\t\"network\" : ")
	separator := "\n\t[\n"
	for _, l := range links {
		fmt.Fprintf(&b, "%s\t\t{\n\t\t\t\"direction\" : \"Right\",\n\t\t\t\"dst_id\" : %d,\n\t\t\t\"src_id\" : %d\n\t\t}", separator, l[1], l[0])
		separator = ",\n"
	}
	if len(links) == 0 {
		b.WriteString("[]")
	} else {
		b.WriteString("\n\t]")
	}
	fmt.Fprintf(&b, ",\n\t\"num_device\" : %d\n}\n", c.cards())
	return []byte(b.String())
}

// WriteLpuctl writes a cabling in our own format, as YAML. ids has the PCI address, name or serial number of each card.
// With PCI addresses the table is also the list of the cards that the server should have.
func WriteLpuctl(c *Cabling, ids []string) []byte {
	var rings, links strings.Builder
	for _, r := range c.Rings {
		if r.Closed && (len(r.Cards) != 2 || len(r.Links) != 2) {
			rings.WriteString("- [" + strings.Join(ringIDs(r, ids), ", ") + "]\n")
			continue
		}
		for _, l := range r.Links {
			if r.Closed { // two cables: the same link twice, because a link and its reverse are one cable described from both ends
				l = r.Links[0]
			}
			fmt.Fprintf(&links, "- {a: %q, b: %q}\n", ids[l[0]], ids[l[1]])
		}
	}
	text := "apiVersion: " + apiVersion + "\nkind: " + kind + "\n"
	if rings.Len() > 0 {
		text += "rings:\n" + rings.String()
	}
	if links.Len() > 0 {
		text += "links:\n" + links.String()
	}
	return []byte(text)
}

// ringIDs is the quoted ids of a closed ring, in the direction of its links.
func ringIDs(r Ring, ids []string) []string {
	first := r.Cards[0]
	if len(r.Links) > 0 {
		first = r.Links[0][0]
	}
	quoted := []string{strconv.Quote(ids[first])}
	for _, l := range r.Links {
		if l[1] != first {
			quoted = append(quoted, strconv.Quote(ids[l[1]]))
		}
	}
	return quoted
}

// cards is how many cards there are.
func (c *Cabling) cards() (n int) {
	for _, ring := range c.Rings {
		n += len(ring.Cards)
	}
	return n
}
