package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// reservation is the document that reserve and extend print.
type reservation struct {
	cli.Header
	lease.Reservation
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

func newReserveCommand(a *app) *cobra.Command {
	var w wish
	var f cli.Format
	var limit time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   "reserve -n NUMBER --for TIME --reason TEXT",
		Short: "Keep LPUs for yourself for some time",
		Long: `reserve keeps LPUs that are free now, so that only you can lease them (lpuctl run) until the time is over. They are chosen as
allocate does. Others see in lpuctl list who has reserved them, until when, and why. A reservation needs no process: log out, and it
stays. It ends with its time, with lpuctl release, and with a reboot.

It asks the arbiter of leases (lpuctl lease serve), which the group lpu may do.`,
		Example: `  lpuctl reserve -n 2 --for 4h --reason "training run for the paper"
  lpuctl run -n 2 -- podman run --rm {args} IMAGE # takes what you have reserved first
  lpuctl extend r3 --for 2h
  lpuctl release                                  # all that you have reserved`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reason = strings.TrimSpace(reason)
			if limit == 0 {
				return cli.Usage("--for is missing: say for how long, such as --for 4h")
			}
			if err := lease.CheckReason(reason); err != nil {
				return cli.Usage("--reason: say why on one line, for those who find the LPUs reserved")
			}
			return reserve(cmd.Context(), a, &w, lease.Reserve{For: limit, Reason: reason}, f)
		},
	}
	w.flags(a, cmd)
	flags := cmd.Flags()
	flags.Func("for", "for how long (`TIME`), such as 30m or 4h; has to be given", positiveTime(&limit))
	flags.StringVar(&reason, "reason", "", "why, in a few words (`TEXT`); has to be given")
	cli.Complete(cmd, "for", "1h", "4h", "8h")
	cli.Complete(cmd, "reason")
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

func reserve(ctx context.Context, a *app, w *wish, r lease.Reserve, f cli.Format) error {
	inv, err := a.scan(ctx)
	if err != nil {
		return err
	}
	if r.Selection, err = w.selection(inv, a.Config.CDI.Kind); err != nil {
		return err
	}
	return withArbiter(a.Root, func(c *lease.Client) error {
		reserved, err := c.Reserve(ctx, r)
		if err != nil {
			return err
		}
		return writeReservation(&a.Terminal, reserved, f)
	})
}

func newExtendCommand(a *app) *cobra.Command {
	var f cli.Format
	var by time.Duration
	cmd := &cobra.Command{
		Use:   "extend RESERVATION --for TIME",
		Short: "Make a reservation longer",
		Long:  `extend adds a time to the end of a reservation. It is your own; root can extend any.`,
		Example: `  lpuctl extend r3 --for 2h
  lpuctl list                     # LEASE has the ids of reservations`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeReservations(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			if by == 0 {
				return cli.Usage("--for is missing: say how much longer, such as --for 2h")
			}
			return withArbiter(a.Root, func(c *lease.Client) error {
				r, err := c.Extend(cmd.Context(), args[0], by)
				if err != nil {
					return err
				}
				return writeReservation(&a.Terminal, r, f)
			})
		},
	}
	cmd.Flags().Func("for", "how much longer (`TIME`), such as 30m or 2h; has to be given", positiveTime(&by))
	cli.Complete(cmd, "for", "1h", "2h", "4h")
	a.FormatFlag(cmd, &f, cli.FormatTable, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

// completeReservations offers the ids of the reservations of this node.
func completeReservations(a *app) cobra.CompletionFunc {
	return completeIDs(a, func(l *discovery.LPU) *discovery.Holder { return l.Reserved })
}

// completeIDs offers the ids of those who hold LPUs of this node.
func completeIDs(a *app, of func(*discovery.LPU) *discovery.Holder) cobra.CompletionFunc {
	seen := map[string]bool{}
	return a.offered(func(l *discovery.LPU, args []string) string {
		h := of(l)
		if h == nil || seen[h.ID] || slices.Contains(args, h.ID) {
			return ""
		}
		seen[h.ID] = true
		return h.ID + "\t" + h.String() + ": " + cmp.Or(h.Reason, h.Command)
	})
}

func writeReservation(t *cli.Terminal, r *lease.Reservation, f cli.Format) error {
	t.Say("reserved until %s: lpuctl list shows it, lpuctl release %s gives it back", timeText(host.WallClock(r.Until)), r.ID)
	switch {
	case f.IsDocument():
		return t.WriteDocument(f, reservation{cli.NewHeader("Reservation"), *r, host.WallClock(r.Since), host.WallClock(r.Until)})
	case f == cli.FormatName:
		return t.WriteLines(r.ID)
	}
	names := cli.Each(r.LPUs, func(l lease.LPU) string { return l.Name })
	return t.WriteTable(nil, [][]string{
		{"Reservation", r.ID}, {"LPUs", strings.Join(names, " ")}, {"Until", timeText(host.WallClock(r.Until))}, {"Reason", r.Reason},
	})
}
