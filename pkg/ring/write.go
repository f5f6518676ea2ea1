package ring

import (
	"fmt"
	"strconv"
	"strings"
)

// WriteHyperdex writes a cabling as HyperDex does, by index and byte for byte as jsoncpp lays it out. The format
// can name cards in links only: if some have none, [Parse] says E_COUNT of what is written.
func WriteHyperdex(c *Cabling) []byte {
	var b strings.Builder
	b.WriteString("{\n\t\"network\" : ")
	separator := "\n\t[\n"
	for _, l := range c.Links {
		fmt.Fprintf(&b, "%s\t\t{\n\t\t\t\"direction\" : \"Right\",\n\t\t\t\"dst_id\" : %d,\n\t\t\t\"src_id\" : %d\n\t\t}", separator, l[1], l[0])
		separator = ",\n"
	}
	if len(c.Links) == 0 {
		b.WriteString("[]")
	} else {
		b.WriteString("\n\t]")
	}
	fmt.Fprintf(&b, ",\n\t\"num_device\" : %d\n}\n", c.cards())
	return []byte(b.String())
}

// WriteLpuctl writes a cabling in our own form, as YAML. ids names each card, by its PCI address, name or serial
// number; with PCI addresses the table is also the list of the cards that should be there.
func WriteLpuctl(c *Cabling, ids []string) []byte {
	var rings, links strings.Builder
	for _, s := range strands(c.cards(), c.Links) {
		twoCables := len(s.ring.Cards) == 2 && len(s.links) == 2
		if s.ring.Closed && !twoCables {
			rings.WriteString("- [" + strings.Join(ringIDs(s, ids), ", ") + "]\n")
			continue
		}
		if twoCables { // the same link twice: the other way round it would be the other end's word for it
			s.links[1] = s.links[0]
		}
		for _, l := range s.links {
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

// ringIDs is the quoted ids of a closed ring, from its first card to the right.
func ringIDs(s strand, ids []string) []string {
	if len(s.links) == 0 {
		return []string{strconv.Quote(ids[s.ring.Cards[0]])}
	}
	quoted := make([]string, 0, len(s.ring.Cards))
	for _, l := range s.links {
		quoted = append(quoted, strconv.Quote(ids[l[0]]))
	}
	if len(s.links) == 1 {
		quoted = append(quoted, strconv.Quote(ids[s.links[0][1]]))
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
