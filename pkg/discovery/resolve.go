package discovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NameError says that a word means no LPU, or more than one.
type NameError string

func (e NameError) Error() string { return string(e) }

// Resolve finds LPUs by what people call them. It returns positions in the inventory,
// each once, in the order of the words. A word is one of these, or several with commas
// between:
//
//	lpu0, LPU0, 0                          name or index
//	0000:43:00.1, 43:00.1                  PCI address; the domain may be left out, as lspci does
//	pci-0000-43-00.1                       CDI device name by PCI address
//	lpu0-1-2-3, all                        CDI device names of sets
//	hyperaccel.ai/lpu=lpu0                 any of these, qualified by the CDI kind
//	/dev/dri/renderD128                    device node
//
// The error names a word that fits no LPU, or more than one, and says which LPUs there
// are.
func (inv *Inventory) Resolve(kind string, words ...string) ([]int, error) {
	var cards []int
	for _, list := range words {
		for word := range strings.SplitSeq(list, ",") {
			found, err := inv.resolveOne(kind, strings.TrimSpace(word))
			if err != nil {
				return nil, err
			}
			for _, card := range found {
				if !slices.Contains(cards, card) {
					cards = append(cards, card)
				}
			}
		}
	}
	return cards, nil
}

func (inv *Inventory) resolveOne(kind, word string) ([]int, error) {
	bare := strings.TrimPrefix(word, kind+"=")
	lower := strings.ToLower(bare)
	everyone := lower == "all"
	if indices, ok := setIndices(lower); ok && slices.Max(indices) < len(inv.LPUs) {
		return indices, nil
	}
	if dashed, ok := strings.CutPrefix(lower, "pci-"); ok {
		lower = strings.ReplaceAll(dashed, "-", ":")
	}
	var found []int
	for i, l := range inv.LPUs {
		if everyone || lower == l.Name || lower == strconv.Itoa(l.Index) || l.Address.IsCalled(lower) ||
			slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.Path == bare }) {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 0:
		return nil, inv.unknown(word, lower)
	case len(found) == 1 || everyone:
		return found, nil
	}
	var candidates []string
	for _, card := range found {
		candidates = append(candidates, inv.LPUs[card].Name+" ("+inv.LPUs[card].Address.String()+")")
	}
	return nil, NameError(fmt.Sprintf("%q can be %s", word, strings.Join(candidates, " or ")))
}

// setIndices parses the name of a set: "lpu0-1-2-3".
func setIndices(name string) (indices []int, ok bool) {
	list, isSet := strings.CutPrefix(name, "lpu")
	for text := range strings.SplitSeq(list, "-") {
		index, err := strconv.Atoi(text)
		if err != nil || index < 0 {
			return nil, false
		}
		indices = append(indices, index)
	}
	return indices, isSet && len(indices) > 1
}

// unknown is the error that a word fits no LPU. It says which LPUs there are.
func (inv *Inventory) unknown(word, address string) error {
	if len(inv.LPUs) == 0 {
		return NameError(fmt.Sprintf("no LPU %q: there is no LPU on this node", word))
	}
	for _, l := range inv.LPUs {
		if m := l.Management; m != nil && m.Address.IsCalled(address) {
			return NameError(fmt.Sprintf("no LPU %q: it is the management function of %s (%s)", word, l.Name, l.Address))
		}
	}
	first, last := inv.LPUs[0], inv.LPUs[len(inv.LPUs)-1]
	return NameError(fmt.Sprintf("no LPU %q: this node has %s (%s) to %s (%s)", word, first.Name, first.Address, last.Name, last.Address))
}
