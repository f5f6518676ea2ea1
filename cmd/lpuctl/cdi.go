package main

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newCDICommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "Make and keep the CDI specification of the LPUs",
		Long: `A CDI specification tells a container runtime what belongs to a device: nodes, mounts and variables.
lpuctl writes one file. Its devices have three families of names:

  lpu0                 one LPU, by index
  pci-0000-b1-00.1     the same by PCI address: survives renumbering, and several can be combined
  lpu0-1-2-3, all      several LPUs that are cabled one to the next (an arc of a ring); every LPU`,
		Example: `  lpuctl cdi generate
  sudo lpuctl cdi refresh
  podman run --device hyperaccel.ai/lpu=lpu0 IMAGE`,
	}
	cmd.AddCommand(newGenerateCommand(a), newRefreshCommand(a), newExplainCommand(a), newCDIListCommand(a), newValidateCommand(a),
		newDiffCommand(a), newRemoveCommand(a))
	return cmd
}

// specOptions are those of a command that makes a spec.
type specOptions struct{ cdi.Options }

// flags are those that shape a spec.
func (o *specOptions) flags(a *app, cmd *cobra.Command) {
	a.RingTableFlag(cmd)
	cmd.Flags().StringVar(&o.Version, "cdi-version", "", "write this CDI `VERSION` (default: the lowest that holds the content)")
	cmd.Flags().BoolVar(&o.Management, "with-mgmt", false, "hand out the management function's node too (it is the card's root of trust)")
	cmd.Flags().BoolVar(&o.UncheckedMounts, "unchecked-mounts", false,
		"put mounts in whether or not the host has them (for when the host cannot be seen)")
	cli.Complete(cmd, "cdi-version", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
}

// scan scans the node for a spec with these options, and adds to them what the config
// says.
func (o *specOptions) scan(ctx context.Context, a *app) (*discovery.Inventory, error) {
	inv, err := a.scanWith(ctx, discovery.Options{Management: o.Management, Unsensed: true})
	if err == nil {
		o.Kind, o.Annotations = a.Config.CDI.Kind, a.Config.CDI.Annotations
	}
	return inv, err
}

// made is the spec of this node as it was made for a command.
type made struct {
	spec     *specs.Spec // nil: there is nothing to hand out, and end says why
	inv      *discovery.Inventory
	findings finding.List // what was left out, and what is wrong with the machine
	end      error        // how the command ends after its work: nil, found, or noLPU
}

// purpose says what a spec is made for.
type purpose int

const (
	toShow purpose = iota
	toUse          // the ring tables that it names have to be in place
)

// make scans the node and makes its spec.
func (o specOptions) make(ctx context.Context, a *app, p purpose) (*made, error) {
	inv, err := o.scan(ctx, a)
	if err == nil {
		err = inv.Undecided()
	}
	if err != nil {
		return nil, err
	}
	m := &made{inv: inv, findings: inv.Problems}
	if len(inv.LPUs) == 0 {
		m.end = cli.NoLPU(a.Root)
		return m, nil
	}
	spec, findings, tables, err := specFor(a.Root, inv, o.Options, p)
	if tables != nil {
		f := finding.New(finding.RingTableLeftOut, cdi.RingTableDir,
			"some containers get no ring table of their own: "+tables.Error(), ringTableRemedy(tables))
		f.Severity = finding.Warning
		findings = append(finding.List{f}, findings...)
	}
	m.findings = slices.Concat(m.findings, findings)
	if errors.Is(err, cdi.ErrNoDevices) {
		m.end = cli.Fail(cli.ExitFound, "", "%w", err)
		return m, nil
	}
	m.spec, m.end = spec, cli.FoundIn(findings)
	return m, err
}

// specFor makes the spec for a purpose. tables is why its ring tables cannot be put in
// place.
func specFor(
	root host.Root, inv *discovery.Inventory, o cdi.Options, p purpose,
) (spec *specs.Spec, findings finding.List, tables, err error) {
	if p == toUse {
		return cdi.SpecAndTables(root, inv, o)
	}
	spec, findings, err = cdi.Spec(inv, o)
	return spec, findings, nil, err
}

// ringTableRemedy is what to do if ring tables cannot be written.
func ringTableRemedy(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run it as root"
	}
	return "see that files can be made in " + cdi.RingTableDir
}
