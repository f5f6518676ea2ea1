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

// lpus finds the LPUs that people named, in the order in which they named them.
func (a *app) lpus(inv *discovery.Inventory, words []string) ([]int, error) {
	return inv.Resolve(a.Config.CDI.Kind, words...)
}

// withNodes is lpus for LPUs that a container is to be given, in the order of the
// inventory.
func (a *app) withNodes(inv *discovery.Inventory, words []string) ([]int, error) {
	cards, err := a.lpus(inv, words)
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

// completeLPUs offers the names of this node's LPUs that are not yet among the arguments.
func (a *app) completeLPUs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(a.lpuNames(cmd, ""), func(offered string) bool {
		name, _, _ := strings.Cut(offered, "\t")
		return slices.Contains(args, name)
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeLPUList offers them for a flag that takes several, separated by commas: those
// that are not yet there.
func (a *app) completeLPUList(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	given := typed[:strings.LastIndex(typed, ",")+1]
	return a.lpuNames(cmd, given), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// lpuNames are the names of this node's LPUs with what tells them apart, or each after
// what was given of a list.
func (a *app) lpuNames(cmd *cobra.Command, given string) []string {
	return a.offered(cmd, func(l *discovery.LPU) string {
		switch {
		case given == "":
			return fmt.Sprintf("%s\t%s %s", l.Name, l.Address, l.Condition())
		case !strings.Contains(","+given, ","+l.Name+","):
			return given + l.Name // in bash, what has a comma completes only without a description
		}
		return ""
	})
}

// offered returns what is offered of each of this node's LPUs; "" is nothing.
func (a *app) offered(cmd *cobra.Command, of func(*discovery.LPU) string) (all []string) {
	if a.Prepare(cmd) != nil {
		return nil
	}
	inv, err := a.scan(cmd.Context())
	if err != nil {
		return nil
	}
	for i := range inv.LPUs {
		if text := of(&inv.LPUs[i]); text != "" {
			all = append(all, text)
		}
	}
	return all
}
