package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newDoctorCommand(a *app) *cobra.Command {
	o, bundle := doctorOptions{}, bundleOptions{}
	cmd := &cobra.Command{
		Use:     "doctor [LINK...]",
		Aliases: []string{"status", "check"},
		Short:   "Say at which link the way from the slot into the container breaks, and what to do",
		Long: `doctor follows the LPUs of this node from the PCI slot into the container, link by link: ` + linkWords() + `.
It prints one line for each link. The first broken link is opened: cause, place and remedy. What follows from it is one line that names
it. With LINKs it looks at these only, and opens them all.

A link that could not be looked at has a "?" and says what it takes. It changes nothing.

With --bundle it packs what lpuctl reads of this node into a file, without secrets and names, that --root takes in place of a directory.

The exit code is 3 if a link is broken, with --strict also if one has a warning or could not be looked at; 4 if there is no LPU.`,
		Example: `  sudo lpuctl doctor
  lpuctl doctor runtime spec        # these links, with all that is found
  lpuctl doctor -o json | jq -r '.links[] | select(.state == "broken") | .link'
  sudo lpuctl doctor --bundle node.tar.gz --yes     # to be sent
  lpuctl --root node.tar.gz doctor                  # what it said there
  lpuctl doctor --diff before.tar.gz after.tar.gz   # what has changed`,
		ValidArgs: cli.Each(doctor.Links(), func(l doctor.Link) string { return string(l) }),
		Args:      cobra.OnlyValidArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if bundle.given() {
				return bundle.run(cmd, a, &o, args)
			}
			d, err := o.diagnose(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			return o.show(a, d, len(args) > 0)
		},
	}
	addBundle(cmd, &bundle)
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with 3 on warnings and on what could not be looked at too")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "open every link that has findings")
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &o.format)
	return cmd
}

type doctorOptions struct {
	strict, all bool
	format      cli.Format
}

func linkWords() string {
	return strings.Join(cli.Each(doctor.Links(), func(l doctor.Link) string { return string(l) }), ", ")
}

// diagnose runs the checks of some links; none: of all.
func (o *doctorOptions) diagnose(ctx context.Context, a *app, links []string) (*doctor.Diagnosis, error) {
	if err := a.LoadConfig(); err != nil {
		return nil, err
	}
	checks := a.replay.checks(checksOf(a))
	if len(links) > 0 {
		checks = slices.DeleteFunc(checks, func(c doctor.Check) bool { return !slices.Contains(links, string(c.Link)) })
	}
	return doctor.Diagnose(ctx, checks), nil
}

// checksOf are the checks of this node. The config was read.
func checksOf(a *app) []doctor.Check {
	scan := scanOnce(a)
	return slices.Concat(doctor.Cards(scan), []doctor.Check{
		doctor.Ownership(func() (owner.File, owner.Standing, error) { return standing(a) }),
		doctor.Specs(strings.Join(specDirs(a), ", "), func(ctx context.Context) (finding.List, error) {
			inv, _ := scan(ctx) // a node whose sysfs cannot be read has specs all the same
			return validateNode(ctx, a, cdi.Validator{Root: a.Root, Host: true, Kind: a.Config.CDI.Kind, Inventory: inv})
		}),
		doctor.Runtimes(func(ctx context.Context) []runtimes.Runtime {
			return runtimes.Check(ctx, string(a.Root), runtimes.Options{SpecDir: a.Config.CDI.SpecDir})
		}),
	})
}

// scanOnce returns a scan that several may call, and that reads once.
func scanOnce(a *app) doctor.Scan {
	var once sync.Once
	var inv *discovery.Inventory
	var err error
	return func(ctx context.Context) (*discovery.Inventory, error) {
		once.Do(func() { inv, err = a.scanWith(ctx, discovery.Options{Management: true}) })
		return inv, err
	}
}

// doctorDocument is what doctor prints for programs.
type doctorDocument struct {
	cli.Header
	*doctor.Diagnosis
}

func (o *doctorOptions) show(a *app, d *doctor.Diagnosis, open bool) error {
	if o.format.IsDocument() {
		if err := a.WriteDocument(o.format, doctorDocument{cli.NewHeader("Diagnosis"), d}); err != nil {
			return err
		}
	} else {
		o.write(a, d, open)
	}
	if d.NoLPU {
		return cli.NoLPU(a.Root)
	}
	bad := func(s doctor.Step) bool {
		return s.State == doctor.Broken || s.State == doctor.Follows || o.strict && (s.State == doctor.Warned || s.State == doctor.Unknown)
	}
	if slices.ContainsFunc(d.Steps, bad) {
		return cli.Found()
	}
	return nil
}

// standing is who hands out the LPUs to pods.
func standing(a *app) (owner.File, owner.Standing, error) {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return owner.File{}, owner.Standing{}, err
	}
	of, err := a.Pods(memory)
	if err != nil {
		return owner.File{}, owner.Standing{}, err
	}
	file := of.Owner()
	return file, file.Stand(), nil
}

// write prints a line for each link, and opens the first that is broken.
func (o *doctorOptions) write(a *app, d *doctor.Diagnosis, open bool) {
	first := d.First()
	for i := range d.Steps {
		s := &d.Steps[i]
		fmt.Fprintln(a.Out, shell.Printable(line(s)))
		if open || o.all || s == first {
			a.Report(s.Findings)
		}
	}
}

// line is a link in one line.
func line(s *doctor.Step) string {
	marks := map[doctor.State]string{
		doctor.Well: "ok", doctor.Absent: "-", doctor.Unknown: "?", doctor.Warned: "warn", doctor.Follows: "->", doctor.Broken: "FAIL",
	}
	text := fmt.Sprintf("%-4s  %-11s  ", marks[s.State], s.Link)
	switch {
	case s.State == doctor.Follows:
		return text + "follows from " + strings.Join(cli.Each(s.From, func(l doctor.Link) string { return string(l) }), ", ")
	case len(s.Findings) > 0 && s.State != doctor.Well:
		return text + mainReason(s.Findings)
	case s.State == doctor.Unknown:
		return text + s.Unseen[0].What + ": " + s.Unseen[0].Why + " (" + s.Unseen[0].Right + ")"
	}
	return text + s.Says
}
