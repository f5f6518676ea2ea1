package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func newHealthCommand(a *app) *cobra.Command {
	var f cli.Format
	var follow bool
	cmd := &cobra.Command{
		Use:   healthName + " [LPU...]",
		Short: "Show how the LPUs are, and why",
		Long: `health shows how each LPU is: what one reading says, judged by what lpuctl serve remembers, which has watched the LPU for longer.
Beside it is what serve itself says: SERVE and SINCE are "-" if it does not run on this node. Only serve knows history: errors that
were counted, a link that was better, a driver that was bound again. With --watch this command has a history of its own, and shows that
as HEALTH.
A state is healthy, unhealthy, or unknown while what is wrong may pass by itself, such as a reset.
` + lpuForms + `
It names the containers that read the ring table of the host instead of their own, as far as this user may see them.

The exit code is 3 if an LPU is unhealthy or in doubt, and 4 if there is no LPU. Warnings leave it 0.

-o npd is for node-problem-detector (docs: node-conditions.md): one line of at most 80 characters that names the worst LPU, and exit code
0 if no LPU is unhealthy, 1 if one is, 2 for anything else, no LPU included. LPUs that are cordoned are no fault then.`,
		Example: `  lpuctl health
  lpuctl health --watch
  lpuctl health lpu3 -o json | jq '.lpus[0].reasons'
  lpuctl health -o npd         # as node-problem-detector runs it`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeLPUs(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(a *app, inv *discovery.Inventory) error {
				inv.Problems = append(slices.Clip(inv.Problems), node.LostTables(cmd.Context(), a.Root, inv)...)
				return showHealth(a, inv, args, f)
			}
			if follow {
				return keepShowing(cmd.Context(), a, f, show)
			}
			inv, err := a.scan(cmd.Context())
			if err != nil {
				return err
			}
			if f == cli.FormatNPD {
				return healthForNPD(a, inv, args)
			}
			return show(a, inv)
		},
	}
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "print the health anew whenever it changes, until ^C")
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML, cli.FormatNPD)
	return cmd
}

// healthDocument is what health prints for programs.
type healthDocument struct {
	cli.Header
	LPUs []lpuHealth `json:"lpus"`
}

// lpuHealth is the part of an LPU that is about its health.
type lpuHealth struct {
	Name         string               `json:"name"`
	Address      pci.Address          `json:"address"`
	Health       health.State         `json:"health"`
	Usable       bool                 `json:"usable"`
	Reasons      finding.List         `json:"reasons"`
	Judged       *discovery.Judged    `json:"judged,omitempty"`
	Cordoned     *health.Cordon       `json:"cordoned,omitempty"`
	Link         *discovery.Link      `json:"link,omitempty"`
	PowerState   string               `json:"powerState,omitempty"`
	Temperatures []health.Temperature `json:"temperatures,omitempty"`
	Watts        *float64             `json:"watts,omitempty"`
}

// showHealth prints how the LPUs of an inventory are, or those that are named.
func showHealth(a *app, inv *discovery.Inventory, words []string, f cli.Format) error {
	if err := keepNamed(a.Config.CDI.Kind, inv, words); err != nil {
		return err
	}
	if err := writeHealth(&a.Terminal, inv, f); err != nil {
		return err
	}
	a.Report(outOfOrder(inv))
	switch {
	case len(inv.LPUs) == 0:
		return cli.NoLPU(a.Root)
	case slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Health != health.Healthy }):
		// This includes an LPU in doubt: what is not known to be healthy is not reported as
		// healthy.
		return cli.Found()
	}
	return nil
}

func writeHealth(t *cli.Terminal, inv *discovery.Inventory, f cli.Format) error {
	if f.IsDocument() {
		return t.WriteDocument(f, healthDocument{cli.NewHeader("Health"), cli.Each(inv.LPUs, func(l discovery.LPU) lpuHealth {
			return lpuHealth{
				l.Name, l.Address, l.Health, l.Usable, l.Reasons, l.Judged, l.Cordoned, l.Link, l.PowerState, l.Temperatures, l.Watts,
			}
		})})
	}
	if len(inv.LPUs) == 0 {
		return nil
	}
	var rows [][]string
	for _, l := range inv.LPUs {
		serve, since := "", ""
		if j := l.Judged; j != nil {
			serve, since = string(j.Health), judgedFor(j).String()
		}
		rows = append(rows, []string{
			l.Name, l.Address.String(), l.Condition(), serve, since, hottest(l.Temperatures), wattsText(l.Watts), mainReason(l.Reasons),
		})
	}
	return t.WriteFitting([]cli.Column{
		{Name: "NAME"}, {Name: "ADDRESS"}, {Name: "HEALTH", Hue: stateHue}, {Name: "SERVE", Hue: stateHue}, {Name: "SINCE"}, {Name: "TEMP"},
		{Name: "POWER"}, {Name: "WHY"},
	}, rows)
}

// stateHue is the colour of what [discovery.LPU.Condition] says, or serve.
func stateHue(condition string) cli.Hue {
	switch state, _, cordoned := strings.Cut(condition, ","); {
	case state == string(health.Unhealthy), state == "absent":
		return cli.Red
	case state == string(health.Unknown), cordoned:
		return cli.Yellow
	case state == string(health.Healthy):
		return cli.Green
	}
	return cli.NoHue
}

func withoutNotes(reasons finding.List) finding.List {
	return slices.DeleteFunc(slices.Clone(reasons), func(r finding.Finding) bool { return r.Severity == finding.Note })
}

// worst is the first error or, without one, the first of the reasons.
func worst(reasons finding.List) finding.Finding {
	return *cmp.Or(reasons.FirstError(), &reasons[0])
}

// mainReason is the first error or, without one, the first warning, and how many more
// there are; if there are only notes, why the LPU was not read, or "".
func mainReason(all finding.List) string {
	reasons := withoutNotes(all)
	if len(reasons) == 0 {
		reasons = withID(all, finding.Asleep)
	}
	if len(reasons) == 0 {
		return ""
	}
	first := worst(reasons)
	text := fmt.Sprintf("%s [%s]", strings.ReplaceAll(first.Message, "\n", " "), first.ID)
	if more := len(reasons) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// judgedFor is how long serve has said of an LPU what it says.
func judgedFor(j *discovery.Judged) time.Duration {
	return (host.SinceBoot() - j.Since).Round(time.Second)
}

// judgedText is what serve says of an LPU, for how long and why; "" if it says nothing.
func judgedText(j *discovery.Judged) string {
	if j == nil {
		return ""
	}
	text := fmt.Sprintf("%s for %v", j.Health, judgedFor(j))
	if why := mainReason(j.Reasons); why != "" {
		text += ": " + why
	}
	return text
}

func hottest(all []health.Temperature) string {
	if len(all) == 0 {
		return ""
	}
	most := slices.MaxFunc(all, func(a, b health.Temperature) int { return int(a.Celsius - b.Celsius) })
	return fmt.Sprintf("%.0f°C", most.Celsius)
}

func wattsText(watts *float64) string {
	if watts == nil {
		return ""
	}
	return fmt.Sprintf("%.0fW", *watts)
}
