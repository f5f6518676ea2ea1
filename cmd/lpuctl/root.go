package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// app is what all commands share: where to speak, and the global flags.
type app struct {
	out, err io.Writer
	env      func(string) (string, bool)

	root       host.Root
	configFile string
	logLevel   string
	logFormat  string
	quiet      bool
	noHeaders  bool // of the commands that print tables

	log       *slog.Logger
	config    *Config
	specDir   string // --spec-dir of the cdi commands
	ringTable string // --ring-table of the commands that scan
	nodeName  string // --node-name of serve
}

// envAnnotation marks a flag that an environment variable LPUCTL_NAME can set.
const envAnnotation = "lpuctl_env"

// run is the whole program: arguments in, exit code out.
func run(ctx context.Context, args []string, out, errOut io.Writer, env func(string) (string, bool)) int {
	a := &app{out: out, err: errOut, env: env}
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && err.Error() != "" {
		a.complain(err)
	}
	switch {
	case cmd.Name() == runName:
		return codeOfRun(err)
	case isForNPD(cmd, args, err):
		return a.codeForNPD(err)
	}
	return codeOf(err)
}

// complain prints an error the way all of them are printed: what is wrong, then what to do.
func (a *app) complain(err error) {
	if faults, ok := errors.AsType[faultyConfig](err); ok {
		a.report(finding.List(faults))
		return
	}
	fmt.Fprintf(a.err, "lpuctl: %s\n", printable(err.Error()))
	if remedy := remedyFor(err); remedy != "" {
		fmt.Fprintf(a.err, "  remedy: %s\n", printable(remedy))
	}
}

// say tells people what was done, unless they asked for quiet.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

func newRootCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lpuctl",
		Short: "Bring LPUs from the PCIe slot into the container",
		Long: `lpuctl finds the LPUs of a Linux node, tells whether a container could use each of them, and
writes the CDI specification by which podman, nerdctl, Docker, containerd and CRI-O hand them out.

Exit codes: 0 done; 1 failed; 2 usage; 3 worked and found something; 4 no LPU on this node.
run has that of the command that it starts, or 125.`,
		Example: `  lpuctl list                          # the LPUs of this node
  sudo lpuctl cdi refresh              # write the spec where runtimes look
  podman run --device hyperaccel.ai/lpu=lpu0 IMAGE

  lpuctl demo                          # no hardware? the main job on a simulated server
  lpuctl simulate /tmp/node            # such a server that stays
  lpuctl --root /tmp/node list`,
		Version:           readVersion().String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.Flags().Bool("version", false, "print the version of lpuctl")
	f := cmd.PersistentFlags()
	f.StringVar((*string)(&a.root), "root", "/", "look at the machine under `DIR` instead of this one")
	f.StringVar(&a.configFile, "config", "", "read `FILE` instead of /etc/lpuctl/config.yaml")
	f.StringVar(&a.logLevel, "log-level", "warn", "log from this `LEVEL` on: debug, info, warn or error; unless it is given, serve takes info")
	f.StringVar(&a.logFormat, "log-format", "text", "log in this `FORMAT`: text or json")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "say only what is wrong")
	f.VisitAll(fromEnvironment)
	_ = cmd.MarkPersistentFlagDirname("root") // fails on an unknown flag only, which the completion test would show
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	cmd.SetFlagErrorFunc(flagError)
	cmd.SetHelpCommand(newHelpCommand())
	cmd.AddCommand(newListCommand(a), newHealthCommand(a), newDescribeCommand(a), newTopologyCommand(a), newRingCommand(a),
		newAllocateCommand(a), newRunCommand(a), newReserveCommand(a), newReleaseCommand(a), newExtendCommand(a),
		newCordonCommand(a), newUncordonCommand(a),
		newCDICommand(a), newRuntimeCommand(a), newServeCommand(a), newExporterCommand(a), newLeaseCommand(a), newConfigCommand(a),
		newSimulateCommand(a), newDemoCommand(a), newCompletionCommand(a), newVersionCommand(a), newHelpTreeCommand(a))
	cmd.CompletionOptions.DisableDefaultCmd = true
	checkArguments(cmd)
	return cmd
}

// fromEnvironment lets LPUCTL_NAME set a flag that was not given.
func fromEnvironment(f *pflag.Flag) {
	f.Annotations = map[string][]string{envAnnotation: {"LPUCTL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}}
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	// The only error is an unknown flag, which the completion test would show.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeFile offers files for a command's one argument.
func completeFile(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// prepare takes flags from the environment where they were not given, and sets up logging.
func (a *app) prepare(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[envAnnotation]
		if f.Changed || len(names) == 0 {
			return
		}
		if value, ok := a.env(names[0]); ok && value != "" {
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				bad = usage("environment variable %s: %v", names[0], flagError(cmd, err))
			}
		}
	})
	if bad != nil {
		return bad
	}
	if a.root == "" {
		return usage("--root is empty: give a directory, or leave it out")
	}
	root := filepath.Clean(string(a.root))
	if strings.HasPrefix(root, "..") { // securejoin refuses such a root
		if absolute, err := filepath.Abs(root); err == nil {
			root = absolute
		}
	}
	a.root = host.Root(root)
	return a.setUpLog()
}

func (a *app) setUpLog() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usage("--log-level %s: expected debug, info, warn or error", a.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.err, options))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.err, options))
	default:
		return usage("--log-format %s: expected text or json", a.logFormat)
	}
	return nil
}

// scanOptions adds what the config says to the options of a scan.
func (a *app) scanOptions(options discovery.Options) (discovery.Options, error) {
	if err := a.loadConfig(); err != nil {
		return options, err
	}
	options.Models = a.config.Models
	options.Policy = a.config.Health.policy()
	options.RingTable = a.ringTable
	if options.RingTable == "" { // the command has no --ring-table, and the variable means the same file to all commands
		options.RingTable, _ = a.env(ringTableVariable)
	}
	var err error
	if table := a.config.Ring.Table; options.RingTable == "" && table != "" {
		options.RingTable, err = a.root.Resolve(table)
	}
	return options, err
}

// remembering adds to the options of a scan what is known of the LPUs from before: by serve, and by the names in the spec in place. It
// returns the memory of serve too.
func (a *app) remembering(options discovery.Options) (discovery.Options, node.Memory, error) {
	file, err := a.locateSpec()
	if err != nil {
		return options, node.Memory{}, err
	}
	memory, err := node.RememberIn(a.root)
	memory.SetApart = a.config.Leases.cordons()
	options.Seen = memory.Seen()
	options.Known = func() (addresses []discovery.Address) {
		data, _ := file.Read() // of a spec that cannot be read nothing is known
		for _, d := range cdi.Devices(data) {
			if address, err := cdi.ParseAddressName(d.Name); err == nil {
				addresses = append(addresses, address)
			}
		}
		return addresses
	}
	return options, memory, err
}

// scan reads the config, the machine, and which LPUs are cordoned.
func (a *app) scan(ctx context.Context, options discovery.Options) (*discovery.Inventory, error) {
	inv, memory, err := a.scanOnly(ctx, options)
	if err != nil {
		return nil, err
	}
	return a.marking(memory)(inv), nil
}

// marking returns what adds the cordons, the leases and the reservations to an inventory.
func (a *app) marking(memory node.Memory) func(*discovery.Inventory) *discovery.Inventory {
	cordons := memory.Cordons()
	return func(inv *discovery.Inventory) *discovery.Inventory {
		return a.markLeases(inv.WithCordons(cordons.Read()), memory)
	}
}

// scanOnly reads the config and the machine. It returns the memory too, which knows the cordons.
func (a *app) scanOnly(ctx context.Context, options discovery.Options) (*discovery.Inventory, node.Memory, error) {
	options, err := a.scanOptions(options)
	if err != nil {
		return nil, node.Memory{}, err
	}
	options, memory, err := a.remembering(options)
	if err != nil {
		return nil, memory, err
	}
	inv, err := discovery.Scan(ctx, string(a.root), options)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		return nil, memory, err
	}
	memory.Judge(inv)
	a.log.Debug("scanned", "root", a.root, "lpus", len(inv.LPUs), "problems", len(inv.Problems))
	return inv, memory, nil
}

// ringTableFlag lets a command take another ring table.
func (a *app) ringTableFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.ringTable, "ring-table", "", "use this ring table `FILE` in place of the node's")
	fromEnvironment(cmd.Flags().Lookup("ring-table"))
}
