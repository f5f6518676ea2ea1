package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func newLeaseHooksCommand(a *app) *cobra.Command {
	var f cli.Format
	var retry bool
	cmd := &cobra.Command{
		Use:   "hooks [LPU...]",
		Short: "Show which LPUs are kept back after a lease, or have leases.hook run on them again",
		Long: `After a lease has ended, and no process has the LPU open any more, the arbiter runs the program that leases.hook of the config file
names, once for each LPU: to reset or scrub it. Its environment has LPUCTL_HOOK=release, LPUCTL_LPU (lpu3), LPUCTL_ADDRESS (the PCI
address), LPUCTL_NODE (the path of its node) and LPUCTL_UID (who had the lease). With exit code 0 the LPU is free. With another one, or
after leases.hookTimeout, no user gets the LPU until the program has run with success: when root asks for that by --retry.

The program and the directories above it have to be root's, and writable by root only. It runs in the sandbox of lpuctl-lease.service,
without network, devices and a writable /sys; let it start a unit of its own for what needs more. See /usr/share/doc/lpuctl/leases.md.

It is exit code 3 if an LPU is kept back for another reason than that the program has still to run, or the program cannot be used.`,
		Example: `  lpuctl lease hooks
  lpuctl lease hooks -o json | jq '.kept[].name'
  sudo lpuctl lease hooks --retry          # on all LPUs on which it has failed
  sudo lpuctl lease hooks --retry lpu3`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeKept(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			hooks, err := a.readHooks(args)
			if err != nil {
				return err
			}
			if retry {
				return a.retryHooks(cmd.Context(), hooks)
			}
			return a.showHooks(hooks, f)
		},
	}
	cmd.Flags().BoolVar(&retry, "retry", false, "have the program run again on these LPUs, and wait until it has ended")
	a.FormatFlag(cmd, &f)
	return cmd
}

// leaseHooks is the document of lease hooks.
type leaseHooks struct {
	cli.Header

	Hook     string       `json:"hook,omitempty"`
	Timeout  string       `json:"timeout,omitempty"`
	Kept     []keptLPU    `json:"kept"`
	Problems finding.List `json:"problems"`
}

// keptLPU is an LPU that is kept back after a lease.
type keptLPU struct {
	Name    string      `json:"name"`
	Address pci.Address `json:"address"`
	UID     int         `json:"uid"` // who had the lease
	User    string      `json:"user,omitempty"`
	Since   time.Time   `json:"since"`            // when the lease ended
	Failed  bool        `json:"failed,omitempty"` // the hook has
	Reason  string      `json:"reason"`

	holder string
}

// leaseHook is the program of leases.hook on this machine; nil: there is none.
func (a *app) leaseHook() (*lease.Hook, error) {
	c := a.Config.Leases
	if c.Hook == "" {
		return nil, nil
	}
	program, err := a.Root.Resolve(c.Hook)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	return &lease.Hook{Program: program, Limit: c.HookLimit()}, err
}

// unsafeHook is why a hook is not run; nil if it can be.
func unsafeHook(hook *lease.Hook) *finding.Finding {
	err := wholefile.CheckProgram(hook.Program)
	if err == nil {
		return nil
	}
	f := finding.New(finding.LeaseHookUnsafe, "leases.hook", err.Error()+"; it is not run, and LPUs are kept back after their leases",
		"give it and the directories above it to root, and let no other user write to them: chmod 0755 "+shell.Quoted(hook.Program))
	return &f
}

// readHooks reads which LPUs the arbiter has written down as kept back: all, or those that
// are named. The arbiter is not asked, because that would start it.
func (a *app) readHooks(names []string) (*leaseHooks, error) {
	if err := a.LoadConfig(); err != nil {
		return nil, err
	}
	h := &leaseHooks{Header: cli.NewHeader("LeaseHooks"), Kept: []keptLPU{}, Problems: finding.List{}}
	hook, err := a.leaseHook()
	if err != nil {
		return nil, err
	}
	if hook != nil {
		h.Hook, h.Timeout = a.Config.Leases.Hook, a.Config.Leases.HookTimeout
		if f := unsafeHook(hook); f != nil {
			h.Problems = append(h.Problems, *f)
		}
	}
	files, err := lease.FilesOf(a.Root, "")
	if err != nil {
		return nil, err
	}
	record, err := files.Leases.Peek()
	if err != nil {
		return nil, lease.UnreadError{Err: err}
	}
	now := host.Now()
	for _, k := range record.KeptAt(now) {
		if len(names) > 0 && !slices.Contains(names, k.Name) && !slices.Contains(names, k.Address.String()) {
			continue
		}
		h.Kept = append(h.Kept, keptLPU{
			Name: k.Name, Address: k.Address, UID: k.UID, User: k.User, Since: time.Now().Add(k.Since - now.SinceBoot).Truncate(time.Second),
			Failed: k.Failed != "", Reason: k.Reason(), holder: k.String(),
		})
		if f := k.Finding(); f != nil {
			h.Problems = append(h.Problems, *f)
		}
	}
	if len(h.Kept) < len(names) {
		return nil, cli.Fail(cli.ExitFailed, "see what is: lpuctl lease hooks", "not all of %s are kept back after a lease",
			strings.Join(names, ", "))
	}
	return h, nil
}

// retryHooks has the program run again where it has failed, and waits for it.
func (a *app) retryHooks(ctx context.Context, h *leaseHooks) error {
	tried := false
	for _, k := range h.Kept {
		if !k.Failed {
			continue
		}
		tried = true
		if err := withArbiter(a.Root, func(c *lease.Client) error { return c.Retry(ctx, k.Address) }); err != nil {
			return err
		}
		a.Say("%s has run on %s, which is no longer kept back", h.Hook, k.Name)
	}
	if !tried {
		a.Say("leases.hook has failed on none of them")
	}
	return nil
}

func (a *app) showHooks(h *leaseHooks, f cli.Format) error {
	if f.IsDocument() {
		if err := a.WriteDocument(f, h); err != nil {
			return err
		}
	} else if err := a.writeHooks(h); err != nil {
		return err
	}
	return cli.FoundIn(h.Problems)
}

func (a *app) writeHooks(h *leaseHooks) error {
	if h.Hook == "" {
		a.Say("no program runs after leases: leases.hook is not set")
	} else {
		a.Say("after a lease runs %s, for %s at most", h.Hook, h.Timeout)
	}
	var rows [][]string
	for _, k := range h.Kept {
		rows = append(rows, []string{k.Name, k.Address.String(), k.holder, k.Since.Format(time.RFC3339), shell.Printable(k.Reason)})
	}
	if len(rows) > 0 {
		if err := a.WriteTable([]string{"NAME", "ADDRESS", "LAST-USER", "SINCE", "KEPT-BACK"}, rows); err != nil {
			return err
		}
	}
	a.Report(h.Problems)
	return nil
}

// completeKept offers the LPUs that are kept back after a lease.
func completeKept(a *app) cobra.CompletionFunc {
	return a.offered(func(l *discovery.LPU, args []string) string {
		if l.KeptBack == "" || slices.Contains(args, l.Name) {
			return ""
		}
		return l.Name + "\t" + l.KeptBack
	})
}
