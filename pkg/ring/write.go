package ring

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// WriteHyperdex writes a cabling in HyperDex's format: cards are indices, and the layout
// is that of jsoncpp, byte for byte. The format names cards in links only: if a card has
// no link, [Parse] reports ring-count for what is written.
func WriteHyperdex(c *Cabling) []byte {
	var links []written
	for _, l := range c.links() {
		links = append(links, written{from: l[0], to: l[1]})
	}
	return writeHyperdex(links, len(c.Cards()), "", 0)
}

// written is a link as it is written.
type written struct {
	from, to int
	left     bool // to is on the left of from
}

// writeHyperdex writes links for count cards. A key, unless it is "", says how many of
// them the container or node has.
func writeHyperdex(links []written, count int, key string, own int) []byte {
	text := []byte("{\n\t\"network\" : ")
	before, end := "\n\t[\n", "[]"
	for _, l := range links {
		text = append(text, before...)
		before, end = ",\n", "\n\t]"
		side := sideRight
		if l.left {
			side = sideLeft
		}
		text = append(append(append(text, "\t\t{\n\t\t\t\"direction\" : \""...), side...), '"')
		text = strconv.AppendInt(append(text, ",\n\t\t\t\"dst_id\" : "...), int64(l.to), 10)
		text = strconv.AppendInt(append(text, ",\n\t\t\t\"src_id\" : "...), int64(l.from), 10)
		text = append(text, "\n\t\t}"...)
	}
	text = append(append(text, end...), ",\n"...)
	if key != "" {
		text = fmt.Appendf(text, "\t%q : %d,\n", key, own)
	}
	return fmt.Appendf(text, "\t\"num_device\" : %d\n}\n", count)
}

// WriteLpuctl writes a cabling in our own format, as YAML. ids has the PCI address, name
// or serial number of each card. With PCI addresses the table is also the list of the
// cards that the server should have.
func WriteLpuctl(c *Cabling, ids []string) []byte {
	var rings, links string
	for _, r := range c.Rings {
		if r.Closed && (len(r.Cards) != 2 || len(r.Links) != 2) {
			rings += "- [" + strings.Join(ringIDs(r, ids), ", ") + "]\n"
			continue
		}
		for _, l := range r.Links {
			// A closed ring has two cables here: the same link twice, because a link and its
			// reverse are one cable described from both ends.
			if r.Closed {
				l = r.Links[0]
			}
			links += fmt.Sprintf("- {a: %q, b: %q}\n", ids[l[0]], ids[l[1]])
		}
	}
	text := "apiVersion: " + statefile.APIVersion + "\nkind: " + kind + "\n"
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
