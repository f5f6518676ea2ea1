package main

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// waitingList is the document that queue prints.
type waitingList struct {
	cli.Header
	Waiting []waiter `json:"waiting"`
}

// waiter is a wish in the queue.
type waiter struct {
	Place int    `json:"place"` // 1 is the first
	ID    string `json:"id"`
	lease.Peer
	Wish    lease.Selection `json:"wish"`
	Since   time.Time       `json:"since"`
	Mine    bool            `json:"mine"`
	Why     string          `json:"why"`
	Holders []holding       `json:"holders"`
}

// holding is a lease or a reservation that has LPUs for which a wish waits.
type holding struct {
	ID string `json:"id"`
	lease.Peer
	LPUs  []lease.LPU `json:"lpus"`
	Since time.Time   `json:"since"`
	Until time.Time   `json:"until,omitzero"`
}

func newQueueCommand(a *app) *cobra.Command {
	var f cli.Format
	var mine bool
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Show who waits for LPUs, and for whom",
		Long: `queue shows the wishes that wait for LPUs (lpuctl run --wait), in their order: whose each is, what for, how many LPUs it wants and
which, since when it waits, and who holds LPUs that it waits for, until when. Where no lease and no reservation is in its way, it
says what is.

It asks the arbiter of leases (lpuctl lease serve), which the group lpu may do.`,
		Example: `  lpuctl queue
  lpuctl queue --mine
  lpuctl queue -o json | jq -r '.waiting[] | "\(.place) \(.user) \(.wish.count)"'
  sudo lpuctl release l9          # takes a wish out of the queue`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return queue(cmd.Context(), a, mine, f) },
	}
	cmd.Flags().BoolVar(&mine, "mine", false, "show only what you wait for")
	a.FormatFlag(cmd, &f)
	return cmd
}

func queue(ctx context.Context, a *app, mine bool, f cli.Format) error {
	var all []lease.Queued
	err := withArbiter(a.Root, func(c *lease.Client) (err error) {
		all, err = c.Queue(ctx)
		return err
	})
	if err != nil {
		return err
	}
	list := waitingList{cli.NewHeader("WaitingList"), []waiter{}}
	for i, q := range all {
		if q.Mine || !mine {
			list.Waiting = append(list.Waiting, waiterOf(i+1, q))
		}
	}
	switch {
	case f.IsDocument():
		return a.WriteDocument(f, list)
	case len(list.Waiting) == 0 && mine:
		a.Say("you wait for no LPU")
		return nil
	case len(list.Waiting) == 0:
		a.Say("no wish waits for LPUs")
		return nil
	}
	return a.WriteTable([]string{"PLACE", "ID", "USER", "COMMAND", "WANTS", "SINCE", "HELD-BY"}, cli.Each(list.Waiting, waiter.row))
}

func waiterOf(place int, q lease.Queued) waiter {
	return waiter{place, q.ID, q.Peer, q.Wish, host.WallClock(q.Since), q.Mine, q.Why, cli.Each(q.Holders, func(l lease.Lease) holding {
		return holding{l.ID, l.Peer, l.LPUs, host.WallClock(l.Since), host.WallClock(l.Until)}
	})}
}

// row is a line of the table.
func (w waiter) row() []string {
	held := strings.Join(cli.Each(w.Holders, holding.String), ", ")
	return []string{strconv.Itoa(w.Place), w.ID, w.String(), w.Command, wantsText(&w.Wish), timeText(w.Since), cmp.Or(held, w.Why)}
}

// String is the holder for people: "l7 of bob(1000) until 2026-11-24T10:00:00Z".
func (h holding) String() string {
	text := h.ID + " of " + h.Peer.String()
	if until := timeText(h.Until); until != "" {
		text += " until " + until
	}
	return text
}

// wantsText says which LPUs a wish is for: "4 connected, on NUMA node 0".
func wantsText(s *lease.Selection) string {
	text := strconv.Itoa(s.Count)
	if s.Connected {
		text += " connected"
	}
	if s.Place.Near != allocate.Anywhere {
		text += ", on " + s.Place.String()
	}
	if len(s.Must) > 0 {
		text += ", with " + strings.Join(cli.Each(s.Must, pci.Address.String), " ")
	}
	return text
}
