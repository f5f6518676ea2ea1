package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/bundle"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

type bundleOptions struct {
	file      string
	yes, diff bool
}

// addBundle adds the flags of bundles.
func addBundle(cmd *cobra.Command, o *bundleOptions) {
	f := cmd.Flags()
	f.StringVar(&o.file, "bundle", "", "pack what lpuctl reads of this node into `FILE`, below 1 MiB and without secrets and names, "+
		"which --root takes later; the list of what goes in is shown first")
	f.BoolVar(&o.yes, "yes", false, "with --bundle: do not ask after the list")
	f.BoolVar(&o.diff, "diff", false, "with two bundles in place of LINKs: say what changed from the first to the second")
	links := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if o.diff {
			return cobra.ExactArgs(2)(cmd, args)
		}
		return links(cmd, args)
	}
}

func (o *bundleOptions) given() bool { return o.file != "" || o.diff }

func (o *bundleOptions) run(cmd *cobra.Command, a *app, d *doctorOptions, args []string) error {
	switch {
	case o.file != "" && o.diff:
		return cli.Usage("--bundle and --diff exclude each other")
	case o.diff:
		return diffBundles(a, args[0], args[1], d.format)
	case len(args) > 0:
		return cli.Usage("--bundle takes all links: leave %s out", strings.Join(args, " "))
	case a.replay != nil:
		return cli.Usage("the root is a bundle already")
	}
	if err := wholefile.Refuse(o.file); err != nil {
		return err
	}
	b, err := collect(cmd.Context(), a, d)
	if err != nil {
		return err
	}
	packed, err := b.Pack()
	if err != nil {
		return err
	}
	writeSummary(a.Err, b, len(packed))
	if err := o.agreed(cmd.InOrStdin(), a.Err); err != nil {
		return err
	}
	if err := wholefile.ReplacePrivate(o.file, packed); err != nil {
		return err
	}
	a.Say("wrote %s", o.file)
	return nil
}

// agreed asks whether the file is written. Where nothing can be answered --yes is needed.
func (o *bundleOptions) agreed(in io.Reader, out io.Writer) error {
	if o.yes {
		return nil
	}
	if file, ok := in.(*os.File); !ok || !cli.IsTerminal(file) || !cli.IsTerminal(out) {
		return cli.Usage("nothing was written: look at the list; then: --yes")
	}
	if yes, _ := askYes(in, out, "Write this to "+o.file+"?"); !yes {
		return cli.Fail(cli.ExitFailed, "", "nothing was written")
	}
	return nil
}

func writeSummary(w io.Writer, b *bundle.Bundle, size int) {
	fmt.Fprintf(w, "The bundle has %d bytes (unpacked, in it: files, bytes):\n", size)
	for _, s := range b.Summary() {
		fmt.Fprintf(w, "  %5d %8d  %s\n", s.Files, s.Bytes, s.What)
	}
	writeNotes(w, "Left out", b.Index.LeftOut)
	writeNotes(w, "Replaced by stand-ins", b.Index.Replaced)
}

func writeNotes(w io.Writer, title string, notes []bundle.Note) {
	if len(notes) > 0 {
		fmt.Fprintf(w, "%s:\n", title)
	}
	for _, n := range notes {
		fmt.Fprintf(w, "  %s\n", shell.Printable(n.String()))
	}
}

// collect looks at this node as the commands do that work on a bundle later.
func collect(ctx context.Context, a *app, o *doctorOptions) (*bundle.Bundle, error) {
	faulty, err := o.unconfigured(ctx, a)
	if err != nil {
		return nil, err
	}
	now, wall := host.Now(), time.Now()
	people, _ := person.In(a.Root, leaseGroup).Names() // more are known by what they have leased
	names := bundle.NewNames(hostNames(a.Root), people)
	c := bundle.NewCollector(a.Root, names, a.Config.CDI.Kind)
	addFiles(a, c)
	end := c.Watch()
	d, err := o.diagnose(ctx, a, nil)
	for _, command := range []string{"topology", "health", "ring check", "cdi validate"} {
		lookBy(ctx, a, command)
	}
	inv, unread := a.scan(ctx)
	if unread == nil && len(inv.LPUs) > 0 {
		lookBy(ctx, a, strings.Join(append([]string{"describe"}, cli.Each(inv.LPUs, func(l discovery.LPU) string { return l.Name })...), " "))
	}
	end()
	if err != nil {
		return nil, err
	}
	if faulty != nil {
		d = faulty
	}
	addHolders(names, inv)
	if err := addAnswers(a, c, answersOf(ctx, a, d, inv, wall)); err != nil {
		return nil, err
	}
	if a.Root == "/" {
		addJournals(ctx, c)
	}
	b := c.Bundle(bundle.Index{
		Made: wall.UTC(), Boot: now.Boot, SinceBoot: now.SinceBoot, Program: cli.ReadVersion().Version, Kernel: kernel(), UID: os.Geteuid(),
	})
	return b, ctx.Err()
}

// unconfigured reads the config. If its file cannot be used, the defaults count from here
// on, and the diagnosis says what is wrong with the file; else it is nil.
func (o *doctorOptions) unconfigured(ctx context.Context, a *app) (*doctor.Diagnosis, error) {
	err := a.LoadConfig()
	if err == nil {
		return nil, nil
	}
	if info, unseen := os.Stat(string(a.Root)); unseen != nil || !info.IsDir() || host.IsShortage(err) || cli.CodeOf(err) == cli.ExitUsage {
		return nil, err
	}
	check := doctor.Config.Answer("", cli.ConfigFaults(err))
	if cli.ConfigFaults(err) == nil {
		check.Run = func(context.Context) doctor.Result { return doctor.Unable("the config file", err) }
	}
	a.Config, _ = cli.ParseConfig("", nil)
	return doctor.Diagnose(ctx, o.within, []doctor.Check{check}), nil
}

// lookBy has a command look at this node. What it says does not matter.
func lookBy(ctx context.Context, a *app, command string) {
	args := append([]string{"--root", string(a.Root), "--quiet"}, strings.Fields(command)...)
	if a.ConfigFile != "" {
		args = append(args, "--config", a.ConfigFile)
	}
	run(ctx, args, io.Discard, io.Discard, a.Env)
}

// kernel is the release of the running kernel (uname(2)).
func kernel() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

// addFiles adds the files that are not only looked at but read.
func addFiles(a *app, c *bundle.Collector) {
	for _, dir := range specDirs(a) {
		c.Specs(dir, cdi.SpecMax)
	}
	c.State(node.StateDir)
	c.State("/run/lpuctl")
	for _, dir := range []string{cdi.RingTableDir, cdi.RingTableDir + "/over", node.StateDir + "/ring"} {
		c.Tables(dir)
	}
	c.Own(cli.DefaultConfigFile, cli.ConfigKeys())
	for _, file := range []string{
		discovery.InstalledRingTable, discovery.HyperdexRingTable, a.Config.Ring.Table, discovery.LastRingTable,
	} {
		if file != "" {
			c.Table(path.Clean(file))
		}
	}
	for _, pattern := range []string{
		"/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml", "/etc/cri/containerd.toml", "/etc/crio/crio.conf",
		"/etc/crio/crio.conf.d/*", "/etc/docker/daemon.json", "/etc/nerdctl/nerdctl.toml", "/etc/containers/containers.conf",
		"/etc/containers/containers.conf.d/*.conf", "/var/lib/kubelet/config.yaml",
	} {
		c.Config(pattern)
	}
	for _, dir := range []string{"/etc/systemd/system/", "/usr/lib/systemd/system/"} {
		for _, unit := range []string{"lpuctl*", "containerd.service", "docker.service", "crio.service", "kubelet.service"} {
			c.Config(dir + unit)
			c.Config(dir + unit + ".d/*.conf")
		}
	}
}

// hostNames are the names of the machine: as it calls itself, and as its file says.
func hostNames(root host.Root) (names []string) {
	if name, err := os.Hostname(); err == nil && root == "/" {
		names = append(names, name)
	}
	if data, err := root.Read("/etc/hostname", 4<<10); err == nil {
		names = append(names, strings.TrimSpace(string(data)))
	}
	return names
}

// journalLines is how many lines of each unit are looked at, and journalPatience how long.
const (
	journalLines    = 200
	journalPatience = 5 * time.Second
)

// addJournals adds what units of lpuctl have written, if there is a journal.
func addJournals(ctx context.Context, c *bundle.Collector) {
	ctx, cancel := context.WithTimeout(ctx, journalPatience)
	defer cancel()
	for _, unit := range []string{
		"lpuctl-serve", "lpuctl-cdi-refresh", "lpuctl-lease", "lpuctl-exporter", "lpuctl-runtime-check", "lpuctl-cdi-changed",
	} {
		show := exec.CommandContext(ctx, "journalctl", "--quiet", "--no-pager", "--output=cat", "--lines="+strconv.Itoa(journalLines),
			"--unit="+unit+".service")
		if out, err := show.Output(); err == nil {
			if text := string(bytes.TrimSpace(out)); text != "" {
				c.Journal(unit, strings.Split(text, "\n"))
			}
		}
	}
}

// diffBundles says what changed from one bundle to another.
func diffBundles(a *app, from, to string, f cli.Format) error {
	older, err := bundle.Open(from)
	if err != nil {
		return err
	}
	newer, err := bundle.Open(to)
	if err != nil {
		return err
	}
	changes, err := bundle.Diff(older, newer)
	if err != nil {
		return err
	}
	if f.IsDocument() {
		err = a.WriteDocument(f, struct {
			cli.Header
			Changes []bundle.Change `json:"changes"`
		}{cli.NewHeader("BundleDiff"), changes})
	} else {
		for _, change := range changes {
			fmt.Fprintln(a.Out, change)
		}
	}
	if err == nil && len(changes) > 0 {
		err = cli.Found()
	}
	return err
}
