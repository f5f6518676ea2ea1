package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/proof"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// defaultProofTime is how long an engine has by default; a healthy one takes less than a
// tenth.
const defaultProofTime = 30 * time.Second

// proofOptions are the flags of doctor --run.
type proofOptions struct {
	run              bool
	inside           string
	engines, devices []string
	timeout          time.Duration
}

// addRun adds the proof by container to doctor.
func addRun(a *app, cmd *cobra.Command, o *proofOptions) {
	flags := cmd.Flags()
	flags.BoolVar(&o.run, "run", false,
		"start a container with free LPUs by each engine that is here, and compare what it gets with what was promised")
	flags.StringSliceVar(&o.engines, "engine", nil, "with --run: only these `ENGINES`: "+strings.Join(proof.Engines(), ", "))
	flags.StringSliceVar(&o.devices, "device", nil, "with --run: these `LPUS` (default: all that are usable and used by nobody)")
	flags.DurationVar(&o.timeout, "timeout", defaultProofTime, "with --run: how long an engine may take (`TIME`)")
	flags.StringVar(&o.inside, "inside", "", "what a container of --run does: compare with the promise in `FILE`; -: stdin")
	// They fail on unknown flags only.
	_ = flags.MarkHidden("inside")
	_ = cmd.RegisterFlagCompletionFunc("device", completeLPUList(a))
	cli.Complete(cmd, "engine", proof.Engines()...)
	cli.Complete(cmd, "timeout")
}

// asked reports whether doctor is to do something else than to diagnose.
func (o *proofOptions) asked() bool { return o.run || o.inside != "" }

// proofDocument is what doctor --run prints for programs.
type proofDocument struct {
	cli.Header
	LPUs    []string        `json:"lpus"` // that the containers get
	Engines []*proof.Result `json:"engines"`
	// Why is why no LPU can be used for a proof.
	Why string `json:"why,omitempty"`
}

// prove starts containers, or is what runs in one.
func (o *proofOptions) prove(ctx context.Context, a *app, d *doctorOptions, links []string) error {
	switch {
	case o.inside != "":
		return o.lookInside(a.Out)
	case len(links) > 0:
		return cli.Usage("--run proves the whole way: leave out %s", strings.Join(links, " "))
	case o.timeout <= 0 || o.timeout > proof.Longest:
		return cli.Usage("--timeout %v: from 1s to %v", o.timeout, proof.Longest)
	}
	sockets := cli.Each(runtimes.CRISockets(string(a.Root)), func(s runtimes.CRISocket) proof.Socket {
		return proof.Socket{Engine: s.Runtime, Path: s.Path}
	})
	engines := o.engines
	for _, name := range engines {
		if !slices.Contains(proof.Engines(), name) {
			return cli.Usage("--engine %s: one of %s", name, strings.Join(proof.Engines(), ", "))
		}
	}
	if engines == nil {
		engines = proof.Here(func(program string) bool { _, err := exec.LookPath(program); return err == nil }, sockets)
	}
	got, err := o.take(ctx, a)
	if err != nil {
		return err
	}
	defer got.giveBack()
	document := proofDocument{Header: cli.NewHeader("Proof"), LPUs: got.names, Engines: []*proof.Result{}, Why: got.why}
	found := func(r *proof.Result) {
		document.Engines = append(document.Engines, r)
		if !d.format.IsDocument() {
			writeProof(&a.Terminal, r)
		}
	}
	if got.why == "" {
		p, err := o.proof(a, got)
		if err != nil {
			return err
		}
		p.Sockets = sockets
		err = p.Run(ctx, engines, found)
		if ctx.Err() != nil {
			return cli.Fail(cli.ExitFailed, "", "interrupted: what was made is removed")
		}
		if err != nil {
			return err
		}
	}
	return document.end(a, d)
}

// end prints the document, and says how it has ended.
func (p *proofDocument) end(a *app, d *doctorOptions) error {
	switch {
	case d.format.IsDocument():
		if err := a.WriteDocument(d.format, p); err != nil {
			return err
		}
	case p.Why != "":
		fmt.Fprintln(a.Out, shell.Printable("not provable: "+p.Why))
	case len(p.Engines) == 0:
		fmt.Fprintln(a.Out, "not provable: no engine of containers is here")
	}
	unproved := p.Why != "" || len(p.Engines) == 0
	for _, r := range p.Engines {
		if r.State == proof.Failed {
			return cli.Found()
		}
		unproved = unproved || r.State != proof.Proved
	}
	if unproved && d.strict {
		return cli.Found()
	}
	return nil
}

// writeProof prints what came of an engine: one line, and what is wrong below it.
func writeProof(t *cli.Terminal, r *proof.Result) {
	mark := map[proof.State]string{proof.Proved: "ok", proof.Failed: "FAIL", proof.Unprovable: "?"}[r.State]
	engine := r.Engine
	if r.Rootless {
		engine += " (rootless)"
	}
	says := r.Why
	switch r.State {
	case proof.Proved:
		says = cli.Plural(len(r.Opened), "node") + " opened: " + strings.Join(r.Opened, " ")
	case proof.Unprovable:
		says = "not provable: " + says
	}
	lines := []string{fmt.Sprintf("%-4s  %-18s  %s", mark, engine, says)}
	for _, l := range r.Libraries {
		if text := libraryText(l); text != "" {
			lines = append(lines, "  "+text)
		}
	}
	if len(r.FromImage) > 0 {
		lines = append(lines, "  an image has to bring: "+strings.Join(r.FromImage, " "))
	}
	for _, difference := range r.Differences {
		lines = append(lines, "  "+difference)
	}
	for line := range strings.Lines(r.Words) {
		lines = append(lines, "  "+r.Engine+" says: "+strings.TrimSpace(line))
	}
	if r.Remedy != "" {
		lines = append(lines, "  remedy: "+r.Remedy)
	}
	for _, line := range lines {
		fmt.Fprintln(t.Out, shell.Printable(line))
	}
}

func libraryText(l proof.Library) string {
	switch {
	case l.Fault != "":
		return "" // it is a difference
	case l.Unread != "":
		return l.Path + " was not judged: " + l.Unread
	}
	return l.Path + " is of this architecture (read, not loaded)"
}

// lookInside is what runs in the container.
func (o *proofOptions) lookInside(out io.Writer) error {
	in := &proof.Inside{Root: "/", Environ: os.Environ()}
	if o.inside == "-" {
		return in.Serve(os.Stdin, out)
	}
	file, err := os.Open(o.inside)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return in.Serve(file, out)
}

// taken are LPUs for a proof, and the lease of them.
type taken struct {
	inv   *discovery.Inventory
	names []string
	why   string // why there are none
	lease *lease.Client
}

func (t *taken) giveBack() {
	if t.lease != nil {
		_ = t.lease.Close()
	}
}

// take finds LPUs that are free, and leases them where leases are handed out.
func (o *proofOptions) take(ctx context.Context, a *app) (*taken, error) {
	inv, err := a.scanWith(ctx, discovery.Options{Management: true})
	if err != nil {
		return nil, err
	}
	if len(inv.LPUs) == 0 {
		return nil, cli.NoLPU(a.Root)
	}
	node.FindUsers(ctx, a.Root, inv)
	pods, err := podsLPUs(ctx, a)
	if err != nil {
		a.Say("warning: it is not known which LPUs pods have: %v", err)
	}
	free := slices.DeleteFunc(allocate.Free(inv), func(card int) bool { return pods[inv.LPUs[card].Address] != "" })
	cards := free
	if o.devices != nil {
		if cards, err = withNodes(a.Config.CDI.Kind, inv, o.devices); err != nil {
			return nil, err
		}
		for _, card := range cards {
			if !slices.Contains(free, card) {
				return nil, cli.Fail(cli.ExitFailed, "see lpuctl list, and wait until it is free",
					"%s is not free, and no container of a proof gets it", inv.LPUs[card].Name)
			}
		}
	}
	t := &taken{inv: inv, names: cli.Each(cards, func(card int) string { return inv.LPUs[card].Name })}
	if len(cards) == 0 {
		t.why = "no LPU is usable and free: see lpuctl list"
		return t, nil
	}
	err = t.takeLease(ctx, a, cards, o.devices == nil)
	return t, err
}

// podsLPUs returns the LPUs that pods have. With an error it is not known of some.
func podsLPUs(ctx context.Context, a *app) (map[pci.Address]string, error) {
	of, err := podsOf(a)
	if err != nil {
		return nil, err
	}
	return of.Holders(ctx)
}

// podsOf is what asks which pods have LPUs. The config was read.
func podsOf(a *app) (*pods.Node, error) {
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		return nil, err
	}
	return a.Pods(memory)
}

// takeLease leases LPUs. If that is refused for all that are free, it leases one.
func (t *taken) takeLease(ctx context.Context, a *app, cards []int, orFewer bool) error {
	socket, err := a.Root.Resolve(lease.Socket)
	if err != nil {
		return err
	}
	if errors.Is(unix.Access(socket, unix.W_OK), unix.ENOENT) {
		return nil
	}
	err = lease.Patiently(ctx, lease.Patience, func() (err error) {
		if t.lease, err = lease.Dial(socket); err != nil {
			return err
		}
		_, err = t.lease.Wish(ctx, lease.Wish{
			Selection: lease.Selection{Count: len(cards), Must: addressesOf(t.inv, cards)}, Command: "doctor",
		}, nil)
		if err != nil {
			t.giveBack()
			t.lease = nil
		}
		return err
	})
	refused, is := errors.AsType[*lease.Refusal](err)
	switch {
	case !is:
		return err
	case refused.ID == finding.LeaseUnreachable && !errors.Is(unix.Access(socket, unix.W_OK), unix.EACCES):
		return nil // no service runs
	case orFewer && len(cards) > 1:
		t.names = t.names[:1]
		return t.takeLease(ctx, a, cards[:1], false)
	}
	t.names, t.why = []string{}, "no lease: "+refused.Error()
	return nil
}

// proof says what containers get with the LPUs that were taken, and how they are started.
func (o *proofOptions) proof(a *app, t *taken) (*proof.Proof, error) {
	site, err := a.site()
	if err != nil {
		return nil, err
	}
	c, err := site.Container(t.inv, t.names)
	if err != nil {
		return nil, err
	}
	promise := proof.PromiseOf(t.inv, t.names, c)
	if a.Root != "/" {
		below, err := a.Root.Resolve(a.Config.CDI.SpecDir)
		if err != nil {
			return nil, err
		}
		if why := promise.Elsewhere(below, a.Config.CDI.SpecDir); why != "" {
			return nil, cli.Usage("containers are started on this machine, and see nothing of --root %s (%s): leave out --root or --run",
				a.Root, why)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	started := func(args []string) ([]string, error) {
		j := &launch.Job{Site: site, Args: args, Environ: os.Environ(), Options: launch.Options{NoLease: true}}
		return j.Started(t.inv, t.names)
	}
	return &proof.Proof{
		Promise: promise, Container: c, Started: started, Program: self, Timeout: o.timeout, TempDir: os.TempDir(),
	}, nil
}
