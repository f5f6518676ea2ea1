package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// lpuForms says in help texts how an LPU can be named; discovery.Inventory.Resolve reads
// it.
const lpuForms = "An LPU is named by name (lpu0), index (0), PCI address (43:00.1), CDI device (pci-0000-43-00.1, lpu0-1) or device node."

// withNodes finds the LPUs that people named, by a kind of CDI devices among others, and
// that a container is to be given. They are in the order of the inventory.
func withNodes(kind string, inv *discovery.Inventory, words []string) ([]int, error) {
	cards, err := inv.Resolve(kind, words...)
	slices.Sort(cards)
	for _, card := range cards {
		if l := inv.LPUs[card]; len(l.Nodes) == 0 {
			return nil, cli.Fail(cli.ExitFound, "see lpuctl describe "+l.Name, "%s is not available: it has no device node", l.Name)
		}
	}
	return cards, err
}

// addressesOf are the PCI addresses of LPUs.
func addressesOf(inv *discovery.Inventory, cards []int) []pci.Address {
	return cli.Each(cards, func(card int) pci.Address { return inv.LPUs[card].Address })
}

// namesOf are the names of LPUs by their PCI addresses.
func namesOf(inv *discovery.Inventory) map[pci.Address]string {
	names := map[pci.Address]string{}
	for _, l := range inv.LPUs {
		names[l.Address] = l.Name
	}
	return names
}

// completeLPUs offers the names of this node's LPUs that are not yet among the arguments,
// with what tells them apart.
func completeLPUs(a *app) cobra.CompletionFunc {
	return a.offered(func(l *discovery.LPU, args []string) string {
		if slices.Contains(args, l.Name) {
			return ""
		}
		return fmt.Sprintf("%s\t%s %s", l.Name, l.Address, l.Condition())
	})
}

// completeLPUList offers them for a flag that takes several, separated by commas: those
// that are not yet there.
func completeLPUList(a *app) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		given := typed[:strings.LastIndex(typed, ",")+1]
		names, directive := a.offered(func(l *discovery.LPU, _ []string) string {
			switch {
			case given == "":
				return fmt.Sprintf("%s\t%s %s", l.Name, l.Address, l.Condition())
			case !strings.Contains(","+given, ","+l.Name+","):
				return given + l.Name // in bash, what has a comma completes only without a description
			}
			return ""
		})(cmd, nil, "")
		return names, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// offered returns the completion by what is offered of each of this node's LPUs after the
// arguments that are there; "" is nothing.
func (a *app) offered(of func(l *discovery.LPU, args []string) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (all []string, directive cobra.ShellCompDirective) {
		if a.Prepare(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		inv, err := a.scan(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range inv.LPUs {
			if text := of(&inv.LPUs[i], args); text != "" {
				all = append(all, text)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}
