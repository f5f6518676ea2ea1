package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Which LPUs a wish can get: the book says who has which, and internal/allocate chooses among
// sets of cards out of which the wish can be fulfilled. Cards are positions in the
// inventory.

// cards are the LPUs, by position in the inventory, that fulfil a condition.
func (b *Book) cards(fulfils func(*discovery.LPU) bool) (cards []int) {
	for i := range b.Inventory.LPUs {
		if fulfils(b.lpu(i)) {
			cards = append(cards, i)
		}
	}
	return cards
}

// lpu is the LPU at a position in the inventory.
func (b *Book) lpu(card int) *discovery.LPU { return &b.Inventory.LPUs[card] }

func (b *Book) inPool(l *discovery.LPU) bool {
	return b.Pool == nil || slices.Contains(b.Pool, l.Address)
}

// isHandedOut reports whether users get an LPU at all.
func (b *Book) isHandedOut(l *discovery.LPU) bool {
	return l.Fit() && l.Cordoned == nil && b.inPool(l) && b.Pods[l.Address] == "" && !b.failed(l.Address)
}

// offered are the LPUs that are handed out at all, and not reserved by other users.
func (b *Book) offered(uid int) []int {
	_, others := b.reserved(uid)
	return b.cards(func(l *discovery.LPU) bool { return b.isHandedOut(l) && !others[l.Address] })
}

// obtainable are the LPUs that are offered to a user who has not leased them: to get the
// others once more the user has to give them back.
func (b *Book) obtainable(uid int) []int {
	leased := b.leased()
	return slices.DeleteFunc(b.offered(uid), func(card int) bool {
		holder := leased[b.lpu(card).Address]
		return holder != nil && holder.UID == uid
	})
}

// sets are the largest sets of cards out of which a selection can be fulfilled. Each card
// of a set is in some selection.
func (b *Book) sets(s *Selection, cards []int) (sets [][]int) {
	groups, _ := s.Place.Groups(b.Inventory, b.Sockets, cards)
	for _, group := range groups {
		must, all := b.musts(s, group)
		switch {
		case !all || len(group) < s.Count:
		case s.Connected && s.Count > 1:
			if joined := b.joined(group, must, s.Count); joined != nil {
				sets = append(sets, joined)
			}
		case len(must) == s.Count:
			sets = append(sets, must)
		default:
			sets = append(sets, group)
		}
	}
	// The first is the one that fits best.
	slices.SortStableFunc(sets, func(x, y []int) int { return cmp.Compare(len(x), len(y)) })
	return sets
}

// musts are the positions of the LPUs that must be included, and whether all of them are
// among the cards.
func (b *Book) musts(s *Selection, cards []int) (must []int, all bool) {
	for _, card := range cards {
		if slices.Contains(s.Must, b.lpu(card).Address) {
			must = append(must, card)
		}
	}
	return must, len(must) == len(s.Must)
}

// joined are the cards that are in some arc of a size with all that must be in it.
func (b *Book) joined(cards, must []int, size int) (joined []int) {
	for _, arc := range b.fabric.Arcs(cards, size) {
		if len(allocate.Without(must, arc)) == 0 {
			joined = append(joined, arc...)
		}
	}
	slices.Sort(joined)
	return slices.Compact(joined)
}

// possible are the LPUs that a wish could get if no other user had a lease and no process
// used an LPU. It is empty while other users' reservations, health, cordons, or the limit
// or the leases of the user keep it from being fulfilled, so that it holds no other wish
// back.
func (b *Book) possible(uid int, s *Selection) (possible []int) {
	own, _ := b.reserved(uid)
	for _, set := range b.sets(s, b.obtainable(uid)) {
		// The user has these already.
		kept := count(set, func(card int) bool { return own[b.lpu(card).Address] })
		if !b.overLimit(uid, max(0, s.Count-kept)) {
			possible = append(possible, set...)
		}
	}
	return possible
}

// ever are the LPUs that a wish could get if no user had leased or reserved any; none
// where no wish goes first.
func (b *Book) ever(s *Selection) (ever []int) {
	if b.Backfill {
		for _, set := range b.sets(s, b.cards(b.isHandedOut)) {
			ever = append(ever, set...)
		}
	}
	return ever
}

// choose finds LPUs for a wish among those that are free and not blocked; nil if there
// are none. LPUs whose lease ended after the time fresh do not count as free, because the
// look at the node may not have seen yet who still uses them.
func (b *Book) choose(uid int, s *Selection, blocked marks, fresh time.Duration) *allocate.Decision {
	leased := b.leased()
	own, _ := b.reserved(uid)
	free := slices.DeleteFunc(b.offered(uid), func(card int) bool {
		l := b.lpu(card)
		return len(l.Users) > 0 || leased[l.Address] != nil || blocked[card] || b.endedSince(l.Address, fresh) ||
			b.keptBack(uid, l.Address) != nil
	})
	isOwn := func(card int) bool { return own[b.lpu(card).Address] }
	var best *allocate.Decision
	for _, set := range b.sets(s, free) {
		d, err := allocate.Decide(b.Inventory, b.fabric, b.preferring(s, set, isOwn))
		if err == nil && (best == nil || count(d.Chosen, isOwn) > count(best.Chosen, isOwn)) {
			best = d
		}
	}
	if best == nil || b.overLimit(uid, s.Count-count(best.Chosen, isOwn)) {
		return nil
	}
	return best
}

// endedSince reports whether the latest lease of an LPU, with the hook after it, has ended
// at a time or later, or the hook has not succeeded yet.
func (b *Book) endedSince(address pci.Address, fresh time.Duration) bool {
	last := b.ended[address]
	return last != nil && (last.Since >= fresh || last.Hook)
}

// preferring is the wish for LPUs out of a set, with as many of the user's own as can be.
func (b *Book) preferring(s *Selection, set []int, isOwn func(card int) bool) allocate.Wish {
	must, _ := b.musts(s, set)
	w := allocate.Wish{Size: s.Count, Free: set, Must: must, Connected: s.Connected}
	own := slices.DeleteFunc(slices.Clone(set), func(card int) bool { return !isOwn(card) || slices.Contains(must, card) })
	if s.Connected && s.Count > 1 {
		own = b.mostIn(own, must, set, s.Count)
	}
	if with := slices.Concat(must, own); len(with) <= s.Count {
		w.Must = with
	} else {
		w.Free = with
	}
	return w
}

// mostIn are the cards of an arc that has more of them than others, among those arcs that
// have all that must be included.
func (b *Book) mostIn(own, must, set []int, size int) (most []int) {
	for _, arc := range b.fabric.Arcs(set, size) {
		if len(allocate.Without(must, arc)) > 0 {
			continue
		}
		in := slices.DeleteFunc(slices.Clone(own), func(card int) bool { return !slices.Contains(arc, card) })
		if len(in) > len(most) {
			most = in
		}
	}
	return most
}

func count(cards []int, is func(card int) bool) (n int) {
	for _, card := range cards {
		if is(card) {
			n++
		}
	}
	return n
}

func (b *Book) lpus(cards []int) []LPU {
	lpus := []LPU{}
	for _, card := range cards {
		lpus = append(lpus, LPU{b.lpu(card).Address, b.lpu(card).Name})
	}
	return lpus
}
