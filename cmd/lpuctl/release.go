package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

func newReleaseCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "release [RESERVATION...]",
		Short: "Give reservations back, or end a lease",
		Long: `release ends reservations before their time is over: those that are named, or all of yours. Root can release any. A command that
runs with such an LPU keeps it: its lease ends with the command.

Root can end a lease too, by its id (l7), and take a wish out of the queue. The arbiter ends no program: lpuctl run, where it has stayed
as the parent of the command, says who ended the lease and when, and ends the command as --for does. What holds the lease otherwise,
such as the container of podman, is named, for root to end. The LPUs go to others when nothing has them any more.`,
		Example: `  lpuctl release r3
  lpuctl release                  # all that you have reserved
  sudo lpuctl release l7          # a lease, or a wish that waits; lpuctl list and lpuctl queue have the ids`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeHeld(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withArbiter(a.Root, func(c *lease.Client) error {
				if len(args) == 0 {
					return releaseAll(cmd.Context(), a, c)
				}
				for _, id := range args {
					if err := release(cmd.Context(), a, c, id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// releaseAll gives back all that the user has reserved.
func releaseAll(ctx context.Context, a *app, c *lease.Client) error {
	ids, err := c.ReleaseAll(ctx)
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		a.Say("you have reserved no LPU: nothing to release")
	default:
		a.Say("released %s", strings.Join(ids, " "))
	}
	return nil
}

// release gives a reservation back, or ends a lease.
func release(ctx context.Context, a *app, c *lease.Client, id string) error {
	if !strings.HasPrefix(id, "l") {
		err := c.Release(ctx, id)
		if err == nil {
			a.Say("released %s", shell.Printable(id))
		}
		return err
	}
	ended, err := c.End(ctx, id)
	switch {
	case err != nil:
		return err
	case len(ended.LPUs) == 0:
		a.Say("%s of %s waits no longer", ended.ID, ended)
	default:
		names := cli.Each(ended.LPUs, func(l lease.LPU) string { return l.Name })
		a.Say("the lease %s of %s is over: %s go to others when nothing has them any more. If that lasts: %s",
			ended.ID, ended, strings.Join(names, " "), ended.HowToEnd())
	}
	return nil
}

// completeHeld offers the ids of the reservations of this node and, to root, of its leases.
func completeHeld(a *app) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		ids, directive := completeReservations(a)(cmd, args, typed)
		if os.Geteuid() != 0 {
			return ids, directive
		}
		leases, _ := completeIDs(a, func(l *discovery.LPU) *discovery.Holder { return l.Leased })(cmd, args, typed)
		return append(ids, leases...), directive
	}
}
