package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newValidateCommand(a *app) *cobra.Command {
	var f cli.Format
	var targets, devices []string
	var host, strict bool
	cmd := &cobra.Command{
		Use:   "validate [FILE|DIR]",
		Short: "Tell whether containers will get what the CDI specs promise",
		Long: `validate reads spec files as runtimes do, with the same library, and then looks for what the library accepts and
should not: paths that are not absolute, variables that are set twice, files and directories that some users or some
releases cannot read, two files that define one device. By default it checks what the runtimes of this node read, in the
order in which they read it (without a runtime: /etc/cdi, then /var/run/cdi). It compares what a container would get with
each device, its nodes, mounts and variables, with what a spec made now would give. A device that leads to another LPU's
node is an error, and so are an LPU or a set that no file defines. A FILE or DIR is judged by itself, with --host against
this node too. Where nothing is wrong, nothing is printed.

What the library of the newest runtimes refuses is an error; what older ones refuse or read otherwise is a warning. With
--target only these releases count. /usr/share/doc/lpuctl/findings.md explains every finding.

The exit code is 3 if there is an error, with --strict also if there is a warning.`,
		Example: `  lpuctl cdi validate
  lpuctl cdi validate ./spec.json                         # by itself; --host: on this node
  lpuctl cdi validate --device hyperaccel.ai/lpu=lpu0     # podman says "unresolvable CDI devices": why?
  lpuctl cdi validate --target podman=4.3.1,containerd=1.7.5
  lpuctl cdi validate -o json | jq -r '.findings[] | .id'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			findings, err := validate(cmd.Context(), a, args, targets, devices, host || len(args) == 0)
			if err != nil {
				return err
			}
			return a.WriteFindings(cli.FindingList{Findings: findings}, f, strict, "")
		},
	}
	cmd.Flags().StringSliceVar(&targets, "target", nil, "say what these consumers cannot load: `CONSUMER=VERSION`, such as podman=4.3.1")
	cmd.Flags().StringSliceVar(&devices, "device", nil,
		"say why a runtime cannot resolve this `DEVICE`, which it takes by the letter (where directories are checked)")
	cmd.Flags().BoolVar(&host, "host", false, "hold FILE or DIR against this node: its nodes, mounts and LPUs")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 3 on warnings too")
	consumers := cli.Each(runtimes.Consumers(), func(name string) string { return name + "=" })
	cli.Complete(cmd, "target", consumers...)
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f)
	return cmd
}

func validate(ctx context.Context, a *app, args, targets, devices []string, host bool) (finding.List, error) {
	v := cdi.Validator{Root: a.Root, Host: host}
	for _, text := range targets {
		consumer, version, _ := strings.Cut(text, "=")
		newest, err := runtimes.MaxCDI(consumer, version)
		if err != nil {
			return nil, cli.Usage("--target %s: %v", text, err)
		}
		library := runtimes.CDILibrary(consumer, version)
		v.Targets = append(v.Targets, cdi.Target{Consumer: consumer, Release: version, Newest: newest, Library: library})
	}
	if err := a.LoadConfig(); err != nil {
		return nil, err
	}
	v.Kind = a.Config.CDI.Kind
	if host {
		v.Inventory = readHardware(ctx, a)
	}
	v.Devices = devices
	if len(args) == 0 {
		return validateNode(ctx, a, v)
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return v.DirAsTyped(args[0])
	}
	return v.File(args[0]), nil
}

// validateNode validates what the runtimes of this node read. The config was read.
func validateNode(ctx context.Context, a *app, v cdi.Validator) (finding.List, error) {
	v.Claims = preparedClaims(a.Root, a.Log)
	if own, err := a.LocateSpec(); err == nil {
		v.Own = own.Path
	}
	v.Orders = cli.SpecOrders(ctx, a.Root)
	return v.Dirs(specDirs(a))
}

// specValidator judges spec files by what runtimes read and what is in the machine.
func specValidator(ctx context.Context, a *app, own cdi.File, inv *discovery.Inventory) *cdi.Validator {
	return &cdi.Validator{
		Root: a.Root, Host: true, Kind: a.Config.CDI.Kind, Own: own.Path, Inventory: inv, Orders: cli.SpecOrders(ctx, a.Root),
	}
}

// preparedClaims are the uids of the claims that the DRA driver has recorded as prepared;
// nil if that cannot be read.
func preparedClaims(root host.Root, log *slog.Logger) []string {
	memory, err := node.RememberIn(root)
	if err != nil {
		return nil
	}
	records, err := claim.Records(memory.Dir, host.Now().Boot)
	if err != nil {
		log.Warn("it is not known which claims are prepared", "error", err)
		return nil
	}
	return cli.Each(records, func(r *claim.Record) string { return r.UID })
}
