package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// usageDocument is the document that usage prints.
type usageDocument struct {
	cli.Header
	*usage.Report
}

func newUsageCommand(a *app) *cobra.Command {
	var f cli.Format
	var q usage.Query
	now := time.Now().Truncate(time.Second)
	cmd := &cobra.Command{
		Use:   "usage [--since TIME]",
		Short: "Say who has used which LPUs, and for how long",
		Long: `usage sums up, by user and LPU, what the arbiter of leases has recorded: the hours in which an LPU was leased, those in which
its node was really open meanwhile, how many leases began, and how often and how long the user waited for LPUs. An ordinary user sees
what is his own.

A TIME is how long ago (30d, 12h), a day (2026-03-01) or a moment (2026-03-01T08:00:00Z). Whole hours count. The line with the LPU "all"
has the sums of a user: hours of several LPUs are added up, and a lease of four LPUs is one. How exact the hours are, and for how
long they are recorded (leases.usageDays in the config file; 0 turns it off): /usr/share/doc/lpuctl/leases.md.`,
		Example: `  lpuctl usage                                  # the last 30 days
  sudo lpuctl usage --since 2026-03-01 --until 2026-04-01 -o csv >march.csv
  sudo lpuctl usage --since 7d --user anna
  lpuctl usage -o json | jq '.users[] | {user, leasedHours, openHours}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.Check(); err != nil {
				return cli.Usage("%w", err)
			}
			asked := cmd.Flags().Changed("since") || cmd.Flags().Changed("until")
			return a.usage(cmd.Context(), q, asked, f)
		},
	}
	q.Since, q.Until = now.Add(-usageTime), now
	flags := cmd.Flags()
	flags.Func("since", "begin at `TIME` (default 30d)", momentBefore(now, &q.Since))
	flags.Func("until", "end at `TIME` (default now)", momentBefore(now, &q.Until))
	flags.StringVar(&q.User, "user", "", "show one `USER`, by name or uid")
	cli.Complete(cmd, "since", "24h", "7d", "30d", "90d")
	cli.Complete(cmd, "until")
	cli.Complete(cmd, "user")
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatCSV, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

// momentBefore reads a moment: how long before now, or a day or time of the clock.
func momentBefore(now time.Time, into *time.Time) func(string) error {
	return func(text string) error {
		ago := text
		if days, ok := strings.CutSuffix(text, "d"); ok {
			n, err := strconv.ParseUint(days, 10, 16)
			if err != nil {
				return errMoment
			}
			ago = fmt.Sprintf("%dh", 24*n)
		}
		if d, err := time.ParseDuration(ago); err == nil && d >= 0 {
			*into = now.Add(-d)
			return nil
		}
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
				*into = at
				return nil
			}
		}
		return errMoment
	}
}

var errMoment = errors.New("expected how long ago (30d, 12h), a day (2026-03-01) or a moment (2026-03-01T08:00:00Z)")

// usageTime is until how long ago usage looks back.
const usageTime = 30 * 24 * time.Hour

// used returns how much users have had. asked: for a time that someone has chosen.
func (a *app) used(ctx context.Context, q usage.Query, asked bool) (r *usage.Report, err error) {
	if a.replay != nil {
		return a.replay.usage(q.User, asked)
	}
	err = withArbiter(a.Root, func(c *lease.Client) (err error) {
		r, err = c.Usage(ctx, q)
		return err
	})
	return r, err
}

func (a *app) usage(ctx context.Context, q usage.Query, asked bool, f cli.Format) error {
	r, err := a.used(ctx, q, asked)
	if err != nil {
		return err
	}
	if r.Unread > 0 {
		var findings finding.List
		findings.Add(finding.LeaseUsage, "usage", fmt.Sprintf("%s of the journal cannot be read, and what they had is missing here",
			cli.Plural(r.Unread, "line")), "")
		a.Report(findings)
	}
	switch f {
	case cli.FormatJSON, cli.FormatYAML:
		return a.WriteDocument(f, usageDocument{cli.NewHeader("Usage"), r})
	case cli.FormatCSV:
		return writeUsageCSV(a.Out, r, a.NoHeaders)
	}
	if len(r.Users) == 0 {
		a.Say("no use is recorded from %s to %s", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339))
		return nil
	}
	hours := func(h float64) string { return fmt.Sprintf("%.2fh", h) }
	wait := func(s float64) string { return time.Duration(s * float64(time.Second)).Round(time.Second).String() }
	var rows [][]string
	for _, u := range r.Users {
		rows = append(rows, []string{
			(&discovery.Holder{UID: u.UID, User: u.Name}).String(), allLPUs, strconv.Itoa(u.Leases), hours(u.Leased), hours(u.Open),
			strconv.Itoa(u.Waits), wait(u.MeanWait), wait(u.LongestWait),
		})
		for _, l := range u.LPUs {
			rows = append(rows, []string{"", l.Name, strconv.Itoa(l.Leases), hours(l.Leased), hours(l.Open), "", "", ""})
		}
	}
	return a.WriteTable([]string{"USER", "LPU", "LEASES", "LEASED", "OPEN", "WAITS", "MEAN-WAIT", "LONGEST-WAIT"}, rows)
}

// allLPUs stands for the sum of a user.
const allLPUs = "all"

// writeUsageCSV writes a report as RFC 4180 says. Every line has its user, so that
// programs for tables can sort and filter.
func writeUsageCSV(out io.Writer, r *usage.Report, noHeaders bool) error {
	w := csv.NewWriter(out)
	var rows [][]string
	if !noHeaders {
		rows = append(rows, []string{
			"user", "uid", "lpu", "address", "leases", "leasedHours", "openHours", "waits", "meanWaitSeconds", "longestWaitSeconds",
		})
	}
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', 6, 64) }
	for _, u := range r.Users {
		who := []string{plainCell(u.Name), strconv.Itoa(u.UID)}
		row := func(l usage.LPU, s usage.Sum, waits ...string) {
			sum := []string{plainCell(l.Name), l.Address, strconv.Itoa(s.Leases), number(s.Leased), number(s.Open)}
			rows = append(rows, slices.Concat(who, sum, waits))
		}
		row(usage.LPU{Name: allLPUs}, u.Sum, strconv.Itoa(u.Waits), number(u.MeanWait), number(u.LongestWait))
		for _, l := range u.LPUs {
			row(l.LPU, l.Sum, "", "", "")
		}
	}
	return w.WriteAll(rows)
}

// plainCell is a name that no program for tables takes for a formula.
func plainCell(name string) string {
	if strings.ContainsAny(name[:min(1, len(name))], "=+-@\t\r") {
		return "'" + name
	}
	return name
}
