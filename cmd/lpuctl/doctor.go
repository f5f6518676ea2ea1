package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newDoctorCommand(a *app) *cobra.Command {
	o, proof, bundle := doctorOptions{}, proofOptions{}, bundleOptions{}
	cmd := &cobra.Command{
		Use:     "doctor [LINK...]",
		Aliases: []string{"status", "check"},
		Short:   "Say at which link the way from the slot into the container breaks, and what to do",
		Long: `doctor follows the LPUs of this node from the PCI slot into the container, link by link: ` + linkWords() + `.
It prints one line for each link. The first broken link is opened: cause, place and remedy. What follows from it is one line that names
it. With LINKs it looks at these only, and opens them all.

A link that could not be looked at has a "?" and says what it takes. It changes nothing, unless --fix is given: that shows the commands
of all remedies in their order, and runs them if the answer is yes. What is about an LPU that is in use, or that may be, is left out.
Before an installation, --pre looks at the host.

--certify says instead which numbered assumptions of docs/hardware.md this node holds or refutes; --fixture writes what it read, to be sent.

With --run it starts containers, and says of each engine whether a container gets what was promised: proved, failed or not provable.

With --bundle it packs what lpuctl reads of this node into a file, without secrets and names, that --root takes in place of a directory.

The exit code is 3 if a link is broken, with --strict also if one has a warning or could not be looked at; 4 if there is no LPU.`,
		Example: `  sudo lpuctl doctor
  lpuctl doctor runtime spec        # these links, with all that is found
  lpuctl doctor --wait 2m           # after a start of the node
  sudo lpuctl doctor --fix
  sudo lpuctl doctor --certify --fixture node.tar.gz
  sudo lpuctl doctor --run          # the proof: by podman, docker, nerdctl, over CRI
  lpuctl doctor -o json | jq -r '.links[] | select(.state == "broken") | .link'
  sudo lpuctl doctor --bundle node.tar.gz --yes     # to be sent
  lpuctl --root node.tar.gz doctor                  # what it said there
  lpuctl doctor --diff before.tar.gz after.tar.gz   # what has changed`,
		ValidArgs: cli.Each(doctor.Links(), func(l doctor.Link) string { return string(l) }),
		Args:      cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if done, err := a.certify(cmd, o.format, args); done {
				return err
			}
			if asked, err := o.pre(cmd, a); asked {
				return err
			}
			o.open = o.open || len(args) > 0
			switch {
			case proof.asked() && a.replay != nil:
				return cli.Usage("no container can be started on a bundle: leave out --run")
			case proof.asked():
				return proof.prove(cmd.Context(), a, &o, args)
			case bundle.given():
				return bundle.run(cmd, a, &o, args)
			case o.fix:
				return o.mend(cmd.Context(), a, cmd.InOrStdin(), args)
			}
			return o.examine(cmd.Context(), a, args)
		},
	}
	addBundle(cmd, &bundle)
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with 3 on warnings and on what could not be looked at too")
	cmd.Flags().BoolVarP(&o.open, "all", "a", false, "open every link that has findings")
	cmd.Flags().DurationVar(&o.within, "within", doctor.Limit, "take what has not answered in this `TIME` for not seen")
	cli.FromEnvironment(cmd.Flags().Lookup("within"))
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "look again for this `TIME` until nothing is broken")
	cmd.Flags().BoolVar(&o.fix, "fix", false, "show the commands that mend what is broken, and run them after a yes; as root")
	cmd.MarkFlagsMutuallyExclusive("fix", "wait")
	addPre(a, cmd)
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &o.format, cli.FormatTable, cli.FormatJSON, cli.FormatYAML, cli.FormatJUnit)
	addCertify(a, cmd)
	addRun(a, cmd, &proof)
	return cmd
}

type doctorOptions struct {
	strict, open, fix bool
	wait, within      time.Duration
	format            cli.Format
}

// examine prints the diagnosis, of the moment when nothing is broken if it is to wait.
func (o *doctorOptions) examine(ctx context.Context, a *app, links []string) error {
	d, err := o.diagnose(ctx, a, links)
	for until := time.Now().Add(o.wait); err == nil && o.isBad(d) && time.Now().Before(until); {
		d, err = o.later(ctx, a, d, links)
	}
	if err != nil {
		return err
	}
	return o.show(a, d)
}

func linkWords() string {
	return strings.Join(cli.Each(doctor.Links(), func(l doctor.Link) string { return string(l) }), ", ")
}

// diagnose runs the checks of some links; none: of all.
func (o *doctorOptions) diagnose(ctx context.Context, a *app, links []string) (*doctor.Diagnosis, error) {
	for _, word := range links {
		if !slices.Contains(doctor.Links(), doctor.Link(word)) {
			return nil, cli.Usage("%q is no link: %s", word, linkWords())
		}
	}
	err := a.LoadConfig()
	if faults := cli.ConfigFaults(err); faults != nil { // all the rest depends on what it says
		return doctor.Diagnose(ctx, o.within, []doctor.Check{doctor.Config.Answer("", faults)}), nil
	}
	if err != nil {
		return nil, err
	}
	checks := a.replay.checks(checksOf(a, o.within))
	if len(links) > 0 {
		checks = slices.DeleteFunc(checks, func(c doctor.Check) bool { return !slices.Contains(links, string(c.Link)) })
	}
	return doctor.Diagnose(ctx, o.within, checks), nil
}

// later looks again after a moment.
func (o *doctorOptions) later(ctx context.Context, a *app, before *doctor.Diagnosis, links []string) (*doctor.Diagnosis, error) {
	if first := before.First(); first != nil {
		a.Say("waiting: %s: %s", first.Link, mainReason(first.Findings))
	}
	select {
	case <-time.After(time.Second):
		return o.diagnose(ctx, a, links)
	case <-ctx.Done():
		return nil, errors.New("interrupted")
	}
}

// checksOf are the checks of this node, which have some time. The config was read.
func checksOf(a *app, within time.Duration) []doctor.Check {
	scan := scanOnce(a)
	return slices.Concat(doctor.Cards(scan), []doctor.Check{
		doctor.Config.Answer(cmp.Or(a.Config.File, "none, the defaults count"), nil),
		doctor.Ownership(func() (owner.File, owner.Standing, error) { return standing(a) }),
		doctor.Specs(strings.Join(specDirs(a), ", "), func(ctx context.Context) (finding.List, error) {
			inv, _ := scan(ctx) // a node whose sysfs cannot be read has specs all the same
			return validateNode(ctx, a, cdi.Validator{Root: a.Root, Host: true, Kind: a.Config.CDI.Kind, Inventory: inv})
		}),
		doctor.Runtimes(func(ctx context.Context) []runtimes.Runtime {
			return runtimes.Check(ctx, string(a.Root), runtimes.Options{SpecDir: a.Config.CDI.SpecDir, Timeout: perRuntime(within)})
		}),
	}, beyondRuntimes(a, scan))
}

// perRuntime is how long a runtime may take of the time that a diagnosis has. For its files
// Check waits half as long again, so what hangs is known in time.
func perRuntime(within time.Duration) time.Duration { return within / 2 }

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

// standing is who hands out the LPUs to pods.
func standing(a *app) (owner.File, owner.Standing, error) {
	of, err := podsOf(a)
	if err != nil {
		return owner.File{}, owner.Standing{}, err
	}
	file := of.Owner()
	return file, file.Stand(), nil
}
