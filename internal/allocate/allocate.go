// Package allocate decides which LPUs a workload gets. Its input is an inventory and a
// wish, its output a decision with its reasons. The rule itself is [ring.Fabric.Choose].
package allocate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Wish is what a workload asks for. LPUs are given as positions in the inventory.
type Wish struct {
	Size int   // how many LPUs
	Free []int // the LPUs to choose from; see [Free]
	Must []int // the LPUs that the decision must contain
	// Connected refuses LPUs that do not follow each other on a ring. A single LPU is
	// always connected.
	Connected bool
	Place     Place       // where all LPUs must be
	Sockets   map[int]int // of NUMA nodes, for SameSocket; see [discovery.Sockets]
}

// Free returns the LPUs that are available: usable, not cordoned, not leased or reserved,
// and without users as far as discovery.FindUsers has found.
func Free(inv *discovery.Inventory) []int {
	free := []int{}
	for i, l := range inv.LPUs {
		if l.Fit() && l.Cordoned == nil && l.Leased == nil && l.Reserved == nil && l.KeptBack == "" && len(l.Users) == 0 {
			free = append(free, i)
		}
	}
	return free
}

// Decision says which LPUs to take, and why.
type Decision struct {
	LPUs []string `json:"lpus"` // in ring order
	// Connected says that the LPUs follow each other on a ring. It is nil if no ring
	// table says which LPUs are neighbours.
	Connected *bool `json:"connected,omitempty"`
	// FreeAfter are the LPUs that stay free, as arcs: LPUs that follow each other on a
	// ring.
	FreeAfter   [][]string  `json:"freeAfter"`
	Explanation Explanation `json:"explanation"`

	Chosen []int `json:"-"` // positions of LPUs in the inventory
}

// Explanation says how a decision was made.
type Explanation struct {
	Size int      `json:"size"`
	Free []string `json:"free"`
	// UsersHidden: free LPUs may have users that the caller cannot see.
	UsersHidden bool     `json:"usersHidden,omitempty"`
	MustInclude []string `json:"mustInclude"`
	// Kubernetes says that it hands out these LPUs too, or may; the caller knows.
	Kubernetes string      `json:"kubernetes,omitempty"`
	Candidates []Candidate `json:"candidates"` // connected sets, the best first
	Reason     string      `json:"reason"`
}

// Candidate is a connected set that was compared with the others.
type Candidate struct {
	LPUs []string `json:"lpus"` // in ring order
	ring.Candidate
}

// Refusal is the error that a wish cannot be fulfilled: why, and what to do about it.
type Refusal struct{ Why, Remedy string }

func (r *Refusal) Error() string { return r.Why }

// Decide chooses LPUs by the rule of [ring.Fabric.Choose]; f is the fabric of the
// inventory. If the error is a [*Refusal], the decision has no LPUs, and its reason is
// the refusal. Any other error means that the wish makes no sense, such as a size below
// the number of LPUs in Must.
func Decide(inv *discovery.Inventory, f *ring.Fabric, w Wish) (*Decision, error) {
	d := &Decision{LPUs: []string{}, FreeAfter: [][]string{}, Explanation: Explanation{
		Size: w.Size, Free: names(inv, w.Free), MustInclude: names(inv, w.Must), Candidates: []Candidate{},
		UsersHidden: slices.ContainsFunc(w.Free, func(card int) bool { return inv.LPUs[card].UsersHidden }),
	}}
	if r := w.impossible(inv); r != nil {
		d.Explanation.Reason = r.Why
		return d, r
	}
	groups, _ := w.groups(inv)
	choice, err := f.Choose(nil, w.Free, w.Must, w.Size, groups...)
	if err != nil {
		return nil, err
	}
	connected := choice.Pieces == 1
	if w.Connected && w.Size > 1 && !connected {
		r := unconnected(inv, f, w, choice)
		d.Explanation.Reason = r.Why
		return d, r
	}
	d.LPUs, d.Chosen = names(inv, choice.Cards), choice.Cards
	d.FreeAfter = arcs(inv, f, Without(w.Free, choice.Cards))
	if f.Cabled() {
		d.Connected = &connected
	}
	for _, c := range f.Explain(w.Free, w.Must, w.Size, groups...) {
		d.Explanation.Candidates = append(d.Explanation.Candidates, Candidate{names(inv, c.Cards), c})
	}
	d.Explanation.Reason = d.reason(inv, f, choice)
	if why := Unusable(inv, choice.Cards); why != "" {
		d.Explanation.Reason += "; " + why
	}
	return d, nil
}

// impossible returns the reason why the wish cannot be fulfilled even with LPUs that are
// not connected; nil if it can.
func (w Wish) impossible(inv *discovery.Inventory) *Refusal {
	missing := Without(w.Must, w.Free)
	switch {
	case len(missing) > 0:
		return refused(inv, "LPUs that must be included are not free: ", missing)
	case w.Size > len(inv.LPUs):
		return &Refusal{fmt.Sprintf("%s asked for, this node has %d", lpus(w.Size), len(inv.LPUs)), "ask for fewer"}
	case w.Size > len(w.Free):
		why := fmt.Sprintf("%s asked for, %d of %d free: not ", lpus(w.Size), len(w.Free), len(inv.LPUs))
		r := refused(inv, why, Without(everyCard(inv), w.Free))
		r.Remedy = "ask for fewer; " + r.Remedy
		return r
	}
	return w.apart(inv)
}

// apart returns the reason why the free LPUs do not share what they should; nil if enough
// of them do.
func (w Wish) apart(inv *discovery.Inventory) *Refusal {
	if w.Place.Near == Anywhere {
		return nil
	}
	groups, called := w.groups(inv)
	var have []string
	for i, group := range groups {
		free := slices.DeleteFunc(group, func(card int) bool { return !slices.Contains(w.Free, card) })
		if len(free) >= w.Size && len(Without(w.Must, free)) == 0 {
			return nil
		}
		if len(free) > 0 {
			have = append(have, strings.Join(names(inv, free), " ")+" ("+called[i]+")")
		}
	}
	r := &Refusal{
		fmt.Sprintf("%s asked for on %s, where so many are not free", lpus(w.Size), w.Place), "ask for fewer, or allow LPUs of other places",
	}
	if len(w.Must) > 0 {
		r.Why += " together with " + strings.Join(names(inv, w.Must), " ")
	}
	if len(have) > 0 {
		r.Why += ": free are " + strings.Join(have, ", ")
	}
	return r
}

// groups are all LPUs by what they share; none if they may be anywhere.
func (w Wish) groups(inv *discovery.Inventory) (groups [][]int, shared []string) {
	if w.Place.Near == Anywhere {
		return nil, nil
	}
	return w.Place.Groups(inv, w.Sockets, everyCard(inv))
}

// Without returns the cards that are not among the others.
func Without(cards, others []int) []int {
	return slices.DeleteFunc(slices.Clone(cards), func(card int) bool { return slices.Contains(others, card) })
}

func everyCard(inv *discovery.Inventory) []int {
	all := make([]int, len(inv.LPUs))
	for card := range all {
		all[card] = card
	}
	return all
}

// reason is why LPUs are not free, and how they become free.
type reason struct{ why, remedy string }

func reasonOf(l *discovery.LPU) reason {
	switch {
	case !l.Fit():
		return reason{l.State(), "see lpuctl describe %s"}
	case l.Cordoned != nil:
		return reason{"cordoned " + l.Cordoned.String(), l.Cordoned.Remedy("%s")}
	case l.Leased != nil:
		return reason{"leased by " + l.Leased.String(), "wait until %s is given back: lpuctl run --wait"}
	case l.Reserved != nil:
		return reason{"reserved by " + l.Reserved.String(), "who has reserved %s gets it by lpuctl run"}
	case l.KeptBack != "":
		return reason{"kept back after a lease: " + l.KeptBack, "see lpuctl lease hooks, and lpuctl describe %s"}
	case len(l.Users) > 0:
		return reason{"in use by " + l.Users[0].String(), "wait until %s is no longer in use"}
	}
	return reason{"not among the available LPUs that were named", "name %s as available"}
}

// refused returns the refusal because of LPUs that are not free. It names each of them
// with its own reason, such as "lpu2 lpu5 (no driver), lpu3 (in use by vllm(12))".
func refused(inv *discovery.Inventory, why string, cards []int) *Refusal {
	var reasons []reason
	of := map[reason][]string{}
	for _, card := range cards {
		r := reasonOf(&inv.LPUs[card])
		if of[r] == nil {
			reasons = append(reasons, r)
		}
		of[r] = append(of[r], inv.LPUs[card].Name)
	}
	var whys, remedies []string
	for _, r := range reasons {
		named := strings.Join(of[r], " ")
		whys = append(whys, named+" ("+r.why+")")
		remedies = append(remedies, fmt.Sprintf(r.remedy, named))
	}
	return &Refusal{why + strings.Join(whys, ", "), strings.Join(remedies, "; ")}
}

// unconnected returns the reason why no connected LPUs are available.
func unconnected(inv *discovery.Inventory, f *ring.Fabric, w Wish, choice ring.Choice) *Refusal {
	if !f.Cabled() {
		return &Refusal{"it is not known which LPUs are connected: there is no ring table",
			"install one with lpuctl ring install FILE, or leave out --require-connected"}
	}
	r := &Refusal{fmt.Sprintf("%d connected LPUs are not available: %s", w.Size, pieces(inv, f, choice)),
		"free are " + Join(arcs(inv, f, w.Free)) + ": ask for fewer, or leave out --require-connected"}
	if others := Without(everyCard(inv), w.Free); len(others) > 0 {
		more := refused(inv, "; not free are ", others)
		r.Why, r.Remedy = r.Why+more.Why, r.Remedy+"; "+more.Remedy
	}
	return r
}

// reason says in one sentence why the decision is as it is.
func (d *Decision) reason(inv *discovery.Inventory, f *ring.Fabric, choice ring.Choice) string {
	candidates := d.Explanation.Candidates
	switch {
	case !f.Cabled():
		return "there is no ring table: taken by NUMA node, PCIe switch and address"
	case len(candidates) == 1:
		return "it is the only connected set"
	case len(candidates) > 1:
		return fmt.Sprintf("better than %s: %s", strings.Join(candidates[1].LPUs, " "), candidates[1].LostBy)
	}
	return pieces(inv, f, choice)
}

// pieces says how the chosen LPUs fall apart.
func pieces(inv *discovery.Inventory, f *ring.Fabric, choice ring.Choice) string {
	return fmt.Sprintf("no set is connected; the fewest pieces are %d: %s", choice.Pieces, Join(arcs(inv, f, choice.Cards)))
}

// arcs divides LPUs into the longest possible arcs. It returns their names.
func arcs(inv *discovery.Inventory, f *ring.Fabric, cards []int) [][]string {
	all := [][]string{}
	for _, arc := range f.FreeArcs(cards) {
		all = append(all, names(inv, arc))
	}
	return all
}

// Join formats arcs for people: "lpu0 lpu1, lpu4".
func Join(arcs [][]string) string {
	texts := make([]string, len(arcs))
	for i, arc := range arcs {
		texts[i] = strings.Join(arc, " ")
	}
	return strings.Join(texts, ", ")
}

func names(inv *discovery.Inventory, cards []int) []string {
	names := make([]string, len(cards))
	for i, card := range cards {
		names[i] = inv.LPUs[card].Name
	}
	return names
}

func lpus(n int) string {
	if n == 1 {
		return "1 LPU"
	}
	return fmt.Sprintf("%d LPUs", n)
}
