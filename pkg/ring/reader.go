package ring

import (
	"errors"
	"fmt"
	"slices"
)

// Entry is a link as a table in HyperDex's format lists it: the part that HyperDex's
// program reads.
type Entry struct {
	ID   int    // src_id; -1: it has none, or it is no index
	Side string // direction: "Right", or any other word, which means left; "": it has none

	at location
}

// Reading is the cards that HyperDex's program chooses by a table.
type Reading struct {
	IDs []int // in the order in which it uses them
	// Ring: it also uses the cable from the last card to the first; else it takes them for
	// a line.
	Ring bool
	Left []bool // for each card: the next one is on its left, not on its right
}

// Read returns which n cards HyperDex's program chooses, or why it ends with an error.
// entries is the table's network, count its num_device; 0: it has none. free reports
// whether the card with an id is there and nothing uses it.
//
// The rule is that of search_devices in
// testbench/FPGA_Verification/devtoolset/__init__.py, which HyperAccel publishes at
// github.com/Hyper-Accel/vllm, branch testbench; the file calls itself release 1.3.0.
// Later releases read a table_bdf.json with a program that is not public.
//
//   - The order of the file is the order of the ring. Only src_id and direction are
//     read, of as many entries as num_device says. Fewer entries are an error.
//   - The cards are a ring if num_device is n, else a line.
//   - The program goes through the ids, and through all but the last once more, and
//     takes the first n in a row that are free.
//   - The directions are not repeated. A free card in the second round is an error, so
//     no choice goes past the end of the file.
func Read(entries []Entry, count, n int, free func(id int) bool) (Reading, error) {
	if err := readable(entries, count); err != nil {
		return Reading{}, err
	}
	ring := count == n
	r := Reading{Ring: ring}
	for i := range 2*count - 1 {
		e := entries[i%count]
		switch {
		case !free(e.ID):
			r = Reading{Ring: ring}
		case i >= count:
			return Reading{}, fmt.Errorf("no %d free cards follow each other before the end of the table, "+
				"and behind it there are no directions (IndexError)", n)
		default:
			r.IDs, r.Left = append(r.IDs, e.ID), append(r.Left, e.Side != sideRight)
			if len(r.IDs) == n {
				return r, nil
			}
		}
	}
	return Reading{}, fmt.Errorf("no %d free cards follow each other (Not enough available FPGA)", n)
}

// readable says what the program cannot read, whichever cards are free.
func readable(entries []Entry, count int) error {
	if count < 1 {
		return errors.New("the table has no num_device, or it is 0")
	}
	if len(entries) < count {
		return fmt.Errorf("num_device is %d, but there are %d links (IndexError)", count, len(entries))
	}
	for i, e := range entries[:count] {
		switch {
		case e.ID < 0:
			return fmt.Errorf("link %d has no index as its src_id", i)
		case e.Side == "":
			return fmt.Errorf("link %d has no direction (KeyError)", i)
		}
	}
	return nil
}

// Hop is one step of a reading, over the cable that the program expects there.
type Hop struct {
	From, To int
	Left     bool // To is taken to be on the left of From
	Cabled   bool // the table has this cable
}

// Read is what [Read] returns for the table. A card is free unless it is busy or, in the
// table of a container, not in the container.
func (t *Table) Read(n int, busy ...int) (Reading, error) {
	if err := t.Refused(); err != nil {
		return Reading{}, err
	}
	return Read(t.Entries, t.Count, n, func(id int) bool {
		return !slices.Contains(busy, id) && (t.Container == 0 || id < t.Container)
	})
}

// Refused returns why HyperDex's program cannot read the table, whichever cards are free;
// nil: it can.
func (t *Table) Refused() error {
	switch {
	case t.Format != FormatHyperdex:
		return fmt.Errorf("the format is %s", t.Format)
	case !t.json:
		return errors.New("the file is not JSON, or begins with a byte order mark (JSONDecodeError)")
	}
	return readable(t.Entries, t.Count)
}

// Hops is the steps of a reading, and whether the table has a cable for each. A card by
// itself has none.
func (t *Table) Hops(r Reading) []Hop {
	cables := t.cables()
	hops := []Hop{}
	for i, from := range r.IDs {
		if i == len(r.IDs)-1 && (!r.Ring || i == 0) {
			break
		}
		h := Hop{From: from, To: r.IDs[(i+1)%len(r.IDs)], Left: r.Left[i]}
		h.Cabled = cables[h.cable()] > 0
		cables[h.cable()]-- // the way back over the same cable is none
		hops = append(hops, h)
	}
	return hops
}

// cable is the ends of the cable that a hop needs, the second one on the right of the
// first.
func (h Hop) cable() [2]int {
	if h.Left {
		return [2]int{h.To, h.From}
	}
	return [2]int{h.From, h.To}
}

// cables is how many cables lead from the right of one index to the left of another.
func (t *Table) cables() map[[2]int]int {
	cables := make(map[[2]int]int, len(t.Links))
	for _, l := range t.Links {
		if a, b := t.IDs[l[0]], t.IDs[l[1]]; a.positional() && b.positional() {
			cables[[2]int{a.Index, b.Index}]++
		}
	}
	return cables
}
