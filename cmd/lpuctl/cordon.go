package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func newCordonCommand(a *app) *cobra.Command {
	var f cli.Format
	var reason string
	cmd := &cobra.Command{
		Use:   "cordon LPU... --reason TEXT",
		Short: "Take LPUs out of use, without touching who has them",
		Long: `cordon keeps LPUs from being handed out anew: serve tells the kubelet at once that they are unhealthy, and allocate
leaves them out. Containers that have them keep them, also when they are restarted; the CDI spec stays as it is, so that podman and
docker start a container with such an LPU if it is named. A cordon is not a fault: the health of the LPU stays what it is.

A cordon belongs to the PCI address. It outlives reboots, and the card: the next one in the slot is cordoned too, until uncordon.
To cordon again with another reason changes the reason. Only root can do it.
` + lpuForms + `

Printed are all cordons of the node.`,
		Example: `  sudo lpuctl cordon lpu3 --reason "cable to lpu4 is replaced, ask alice"
  sudo lpuctl cordon 0000:46:00.1 lpu4 --reason "firmware update"
  lpuctl list                          # HEALTH is healthy,cordoned`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeLPUs(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			reason = strings.TrimSpace(reason)
			if reason == "" || len(reason) > reasonLimit || strings.ContainsFunc(reason, unicode.IsControl) {
				return cli.Usage("--reason %.40q: say why on one line, with at most %d characters, for those who find the LPU cordoned",
					reason, reasonLimit)
			}
			cordon := health.Cordon{Reason: reason, Since: time.Now().UTC().Truncate(time.Second), By: caller(a.Env)}
			return changeCordons(cmd.Context(), a, args, f, func(inv *discovery.Inventory, cordons health.Cordons) ([]string, error) {
				return addCordon(a.Config.CDI.Kind, inv, cordons, args, cordon)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a few words (`TEXT`); has to be given")
	cli.Complete(cmd, "reason")
	a.FormatFlag(cmd, &f)
	return cmd
}

// reasonLimit is the most bytes of a reason.
const reasonLimit = 200

// caller is the user who runs the command, before sudo.
func caller(env func(string) (string, bool)) string {
	id := fmt.Sprint(os.Getuid())
	if before, ok := env("SUDO_UID"); ok && os.Getuid() == 0 {
		id = before
	}
	u, err := user.LookupId(id)
	if err != nil {
		return "uid(" + id + ")"
	}
	return u.Username + "(" + id + ")"
}

// addCordon adds the LPUs that are named, and says what it did.
func addCordon(
	kind string, inv *discovery.Inventory, cordons health.Cordons, words []string, cordon health.Cordon,
) (says []string, err error) {
	cards, err := inv.Resolve(kind, words...)
	for _, card := range cards {
		l := &inv.LPUs[card]
		who, c := fmt.Sprintf("%s (%s)", l.Name, l.Address), cordon
		before, already := cordons[l.Address]
		switch {
		case already && before.Reason == c.Reason:
			says = append(says, who+" is cordoned already, "+before.String())
			continue
		case already:
			c.Since = before.Since
			says = append(says, who+" was cordoned already; the reason was: "+before.Reason)
		default:
			says = append(says, "cordoned "+who)
		}
		cordons[l.Address] = c
	}
	return says, err
}

// changeCordons changes the cordons of LPUs that are named, says what change says, and
// prints those that are in force.
func changeCordons(
	ctx context.Context, a *app, words []string, f cli.Format, change func(*discovery.Inventory, health.Cordons) ([]string, error),
) error {
	inv, err := a.scan(ctx)
	if err != nil {
		return err
	}
	if err := inv.Undecided(); err != nil && slices.ContainsFunc(words, isNumbered) {
		return cli.Fail(cli.ExitFailed, "name the LPU by its PCI address, such as 0000:43:00.1", "indices of LPUs may be wrong: %w", err)
	}
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return err
	}
	var says []string
	cordons, findings, err := health.ChangeCordons(ctx, memory.Cordons().Path, func(cordons health.Cordons) (err error) {
		says, err = change(inv, cordons)
		return err
	})
	if err != nil {
		return stateError(err, "cordon and uncordon")
	}
	a.Report(findings)
	for _, text := range says {
		a.Say("%s", shell.Printable(text))
	}
	return writeCordons(&a.Terminal, inv, cordons, f)
}

// isNumbered reports whether words may name an LPU by its index, and not by its PCI
// address or node.
func isNumbered(words string) bool {
	for word := range strings.SplitSeq(words, ",") {
		byPlace := strings.Contains(word, ":") || strings.Contains(word, "pci-") || strings.HasPrefix(word, "/")
		if !byPlace && word != cdi.AllDevice {
			return true
		}
	}
	return false
}

// stateError adds what to do if a file of the state directory cannot be written, for what
// it is written.
func stateError(err error, what string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return cli.WithRemedy(err, "only root can "+what+": run it with sudo")
	case errors.Is(err, unix.EROFS):
		return cli.WithRemedy(err, "remount the file system to write to it; in a container, run it on the host")
	}
	return err
}

func writeCordons(t *cli.Terminal, inv *discovery.Inventory, cordons health.Cordons, f cli.Format) error {
	if f.IsDocument() {
		return t.WriteDocument(f, cordons.Document())
	}
	if len(cordons) == 0 {
		return nil
	}
	names := namesOf(inv)
	var rows [][]string
	for _, address := range slices.SortedFunc(maps.Keys(cordons), pci.Address.Compare) {
		c := cordons[address]
		rows = append(rows, []string{names[address], address.String(), c.Since.Format(time.RFC3339), c.By, c.Reason})
	}
	return t.WriteTable([]string{"NAME", "ADDRESS", "SINCE", "BY", "REASON"}, rows)
}
