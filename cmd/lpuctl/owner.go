package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

func newOwnerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "owner",
		Short: "Show or change which program hands out the LPUs to pods",
		Long: `One program of a node hands out its LPUs to Kubernetes pods: the device plugin (lpuctl serve), or the DRA driver (lpuctl-dra).
Both may run. Who it is stands in /var/lib/lpuctl/owner.json; without that file it is the device plugin. It is changed by this command,
and by a program that is started with --owner, as the Helm chart does it.`,
		Example: `  lpuctl owner show
  sudo lpuctl owner set dra`,
	}
	cmd.AddCommand(newOwnerShowCommand(a), newOwnerSetCommand(a))
	return cmd
}

func newOwnerShowCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show which program hands out the LPUs to pods, and what pods have",
		Long: `show prints which program hands out the LPUs of this node to pods, whether each of the two runs, and which LPUs pods have from
either. What pods have from the device plugin is asked of the kubelet, which only root can; prepared claims are those that the DRA
driver has written down, and those that the kubelet names. It is exit code 3 if the file cannot be used, because then nobody hands out
LPUs, and if two pods have one LPU.`,
		Example: `  sudo lpuctl owner show
  lpuctl owner show -o json | jq -r .owner`,
		RunE: func(cmd *cobra.Command, _ []string) error { return showOwner(cmd.Context(), a, f) },
	}
	a.FormatFlag(cmd, &f)
	return cmd
}

func newOwnerSetCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:   "set plugin|dra",
		Short: "Change which program hands out the LPUs to pods",
		Long: `set changes which program hands out the LPUs of this node to pods, while both go on running. Who was it stops at once. Pods that
have LPUs keep them, and the other program offers these when their pods have ended. It offers nothing while it cannot be known what pods
have. A file that cannot be used is replaced, and kept as owner.json.bad. Only root can do it.

A program that is started with --owner, as by the Helm chart, changes it again when it starts: there, change mode of the chart.`,
		Example: `  sudo lpuctl owner set dra
  sudo lpuctl owner set plugin         # and back`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{string(owner.Plugin), string(owner.DRA)},
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := owner.Parse(args[0])
			if err != nil {
				return cli.Usage("%v", err)
			}
			if err := setOwner(cmd.Context(), a, o); err != nil {
				return err
			}
			return showOwner(cmd.Context(), a, f)
		},
	}
	a.FormatFlag(cmd, &f)
	return cmd
}

func setOwner(ctx context.Context, a *app, to owner.Owner) error {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return err
	}
	file := owner.File{Dir: memory.Dir}
	before, err := file.Set(ctx, to, caller(a.Env), false)
	if err != nil {
		return stateError(err, "change the owner")
	}
	if before.Owner == "" {
		a.Say("%s could not be used; it was put aside as %s.bad", file.Path(), file.Path())
	}
	since := "now"
	if before.Owner == to {
		since = "already"
	}
	a.Say("the LPUs of this node are handed out by %s %s", to.Program(), since)
	return nil
}

// ownership is the document of owner show.
type ownership struct {
	cli.Header

	Owner    owner.Owner          `json:"owner,omitempty"` // absent: it is not known
	Since    time.Time            `json:"since,omitzero"`  // absent: there is no file
	By       string               `json:"by,omitempty"`
	Running  map[owner.Owner]bool `json:"running"` // of those of which it is known
	Held     []heldLPU            `json:"held"`
	Unknown  []string             `json:"unknown"` // what cannot be known of Running and Held, and why
	Problems finding.List         `json:"problems"`
}

// heldLPU is an LPU that a pod has.
type heldLPU struct {
	LPU     string      `json:"lpu,omitempty"` // "lpu0"; absent: it is not in the machine
	Address string      `json:"address"`
	From    owner.Owner `json:"from"` // who gave it
	Holder  string      `json:"holder"`
}

func showOwner(ctx context.Context, a *app, f cli.Format) error {
	inv, memory, err := a.ScanOnly(ctx, discovery.Options{})
	if err != nil {
		return err
	}
	of, err := a.Pods(memory)
	if err != nil {
		return err
	}
	now, file := of.Owner().Stand(), of.Owner()
	o := ownership{
		Header: cli.NewHeader("Owner"), Held: []heldLPU{}, Unknown: []string{}, Problems: finding.List{},
	}
	if now.Err != nil {
		why := strings.TrimPrefix(now.Err.Error(), file.Path()+": ")
		o.Problems.Add(finding.OwnerUnknown, file.Path(), why+"; nobody hands out LPUs", "")
	}
	o.Owner, o.Since, o.By, o.Running = now.Record.Owner, now.Record.Since, now.Record.By, now.Running
	for _, who := range []owner.Owner{owner.Plugin, owner.DRA} {
		if why := now.Unknown[who]; why != nil {
			o.Unknown = append(o.Unknown, fmt.Sprintf("whether %s runs: %v", who.Program(), why))
		}
	}
	said, claims, untold := of.All(ctx)
	o.add(inv, owner.Plugin, said.InPods(), untold)
	claimed, unread := claims.Holders()
	o.add(inv, owner.DRA, claimed, unread)
	o.addTwice(inv, said.Twice())
	if err := o.write(&a.Terminal, f); err != nil {
		return err
	}
	a.Report(o.Problems)
	return cli.FoundIn(o.Problems)
}

// add adds the LPUs that pods have from one of the two. With an error they are not all.
func (o *ownership) add(inv *discovery.Inventory, from owner.Owner, holders map[pci.Address]string, err error) {
	if err != nil {
		o.Unknown = append(o.Unknown, fmt.Sprintf("which LPUs pods have from %s: %v", from.Program(), err))
	}
	names := namesOf(inv)
	for _, address := range slices.SortedFunc(maps.Keys(holders), pci.Address.Compare) {
		o.Held = append(o.Held, heldLPU{names[address], address.String(), from, holders[address]})
	}
}

// addTwice adds the LPUs that two pods have as problems.
func (o *ownership) addTwice(inv *discovery.Inventory, twice map[pci.Address]finding.Finding) {
	for i := range inv.LPUs {
		if f, ok := twice[inv.LPUs[i].Address]; ok {
			f.Subject = inv.LPUs[i].Name
			o.Problems = append(o.Problems, f)
		}
	}
}

// write prints it in a format.
func (o *ownership) write(t *cli.Terminal, f cli.Format) error {
	if f.IsDocument() {
		return t.WriteDocument(f, o)
	}
	since := "-"
	if !o.Since.IsZero() {
		since = o.Since.Format(time.RFC3339)
	}
	running := func(who owner.Owner) string {
		if runs, known := o.Running[who]; known {
			return cli.YesNo(runs)
		}
		return "?"
	}
	row := []string{cmp.Or(string(o.Owner), "?"), since, o.By, running(owner.Plugin), running(owner.DRA)}
	if err := t.WriteTable([]string{"OWNER", "SINCE", "BY", "PLUGIN-RUNS", "DRA-RUNS"}, [][]string{row}); err != nil {
		return err
	}
	if len(o.Held) > 0 {
		fmt.Fprintln(t.Out)
		rows := cli.Each(o.Held, func(h heldLPU) []string { return []string{h.LPU, h.Address, string(h.From), h.Holder} })
		if err := t.WriteTable([]string{"NAME", "ADDRESS", "FROM", "HOLDER"}, rows); err != nil {
			return err
		}
	}
	for _, text := range o.Unknown {
		t.Say("it cannot be known %s", shell.Printable(text))
	}
	return nil
}

// newGate is what serve asks before it hands out LPUs. With --owner it is the owner when
// this returns. hear gets what the kubelet behind the socket says.
func newGate(ctx context.Context, of *pods.Node, word, socket string, hear func(*plugin.Said)) (*owner.Gate, error) {
	if word != "" && word != string(owner.Plugin) {
		return nil, cli.Usage("--owner %s: serve can be the owner %s only; for the DRA driver: lpuctl-dra serve --owner dra", word, owner.Plugin)
	}
	g, err := of.PluginGate(socket, hear)
	if err != nil || word == "" {
		return g, err
	}
	g.Insist = true
	return g, stateError(g.Claim(ctx), "change the owner")
}
