package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func newUncordonCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "uncordon LPU...",
		Short: "Let LPUs be handed out again that were cordoned",
		Long: `uncordon takes back what cordon did. A card that is not in the machine any more is named by its whole PCI address; all
is every LPU and every such card that is cordoned. Only root can do it.
` + lpuForms + `

Printed are the cordons that are left.`,
		Example: `  sudo lpuctl uncordon lpu3
  sudo lpuctl uncordon 0000:46:00.1    # the card may be absent
  sudo lpuctl uncordon all`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeCordoned(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeCordons(cmd.Context(), a, args, f, func(inv *discovery.Inventory, cordons health.Cordons) ([]string, error) {
				return uncordon(a.Config.CDI.Kind, inv, cordons, args)
			})
		},
	}
	a.FormatFlag(cmd, &f)
	return cmd
}

// uncordon removes the LPUs and absent cards that are named, and says what it did.
func uncordon(kind string, inv *discovery.Inventory, cordons health.Cordons, words []string) (says []string, err error) {
	var addresses []pci.Address
	for _, list := range words {
		for word := range strings.SplitSeq(list, ",") {
			named, err := cordonedCards(kind, inv, cordons, strings.TrimSpace(word))
			if err != nil {
				return nil, err
			}
			addresses = append(addresses, named...)
		}
	}
	if len(addresses) == 0 {
		return []string{"nothing is cordoned"}, nil
	}
	names := namesOf(inv)
	for _, address := range addresses {
		who := address.String()
		if name := names[address]; name != "" {
			who = name + " (" + who + ")"
		}
		if _, ok := cordons[address]; !ok {
			says = append(says, who+" is not cordoned")
			continue
		}
		delete(cordons, address)
		says = append(says, "uncordoned "+who)
	}
	return says, nil
}

// cordonedCards are the PCI addresses that a word means: of LPUs, or of a card that is
// not in the machine.
func cordonedCards(kind string, inv *discovery.Inventory, cordons health.Cordons, word string) ([]pci.Address, error) {
	bare := strings.ToLower(strings.TrimPrefix(word, kind+"="))
	if bare == cdi.AllDevice {
		return slices.SortedFunc(maps.Keys(cordons), pci.Address.Compare), nil
	}
	cards, err := inv.Resolve(kind, word)
	if err == nil {
		return addressesOf(inv, cards), nil
	}
	for _, parse := range []func(string) (pci.Address, error){pci.Parse, cdi.ParseAddressName} {
		if absent, err := parse(bare); err == nil {
			return []pci.Address{absent}, nil
		}
	}
	return nil, err
}

// completeCordoned offers what is cordoned and not yet among the arguments: names of
// LPUs, addresses of absent cards.
func completeCordoned(a *app) cobra.CompletionFunc {
	return a.offered(func(l *discovery.LPU, args []string) string {
		if l.Cordoned == nil || slices.Contains(args, l.Name) {
			return ""
		}
		return l.Name + "\t" + l.Address.String() + " " + l.Cordoned.Reason
	})
}
