package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// App is what all commands share: the terminal, the global flags and the configuration.
type App struct {
	Terminal

	Env func(string) (string, bool)

	Root       host.Root
	ConfigFile string
	LogLevel   string
	LogFormat  string

	Log       *slog.Logger
	Config    *Config
	SpecDir   string // --spec-dir of the cdi commands
	RingTable string // --ring-table of the commands that scan
	NodeName  string // --node-name of serve

	// Replay takes the place of a root that is a regular file. It may be nil: then that is
	// an error.
	Replay func(*cobra.Command) error

	apart *discovery.Apart // of the scans of this process
}

// Execute runs the command that args call, prints its error, and returns both.
func (a *App) Execute(ctx context.Context, root *cobra.Command, args []string) (*cobra.Command, error) {
	root.SetArgs(args)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && err.Error() != "" {
		a.Complain(err)
	}
	return cmd, err
}

// SetUpRoot gives the root of a program's commands what all programs have: the global
// flags and the commands about itself. Of its other commands it has the one that args
// call made, or all of them if that is not one of these.
func (a *App) SetUpRoot(cmd *cobra.Command, others Commands, args []string) {
	cmd.Version = ReadVersion().of(cmd.Name())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.Prepare(cmd) }
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.Flags().Bool("version", false, "print the version of "+cmd.Name())
	f := cmd.PersistentFlags()
	f.StringVar((*string)(&a.Root), "root", "/",
		"look at the machine under `DIR` instead of this one, or at a bundle (lpuctl doctor --bundle)")
	f.StringVar(&a.ConfigFile, "config", "", "read `FILE` instead of /etc/lpuctl/config.yaml")
	f.StringVar(&a.LogLevel, "log-level", "warn", "log from this `LEVEL` on: debug, info, warn or error; unless it is given, serve takes info")
	f.StringVar(&a.LogFormat, "log-format", "text", "log in this `FORMAT`: text or json")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "say only what is wrong")
	a.colorFlag(f)
	f.VisitAll(FromEnvironment)
	// It fails on an unknown flag only, which the completion test would show.
	_ = cmd.MarkPersistentFlagDirname("root")
	Complete(cmd, "log-level", "debug", "info", "warn", "error")
	Complete(cmd, "log-format", "text", "json")
	Complete(cmd, "color", colorAuto, colorAlways, colorNever)
	if a.Env != nil {
		a.Screen.ASCII = isASCII(a.Env) // an unknown flag is complained of before Prepare
	}
	cmd.SetFlagErrorFunc(flagError)
	cmd.SetHelpCommand(newHelpCommand())
	cmd.AddCommand(newCompletionCommand(a, cmd.Name()), newVersionCommand(a), newHelpTreeCommand(a))
	cmd.CompletionOptions.DisableDefaultCmd = true
	var all func()
	all = func() { others.add(cmd, all) }
	checkArguments(cmd, all)
	if name := called(f, args); others[name] != nil {
		Commands{name: others[name]}.add(cmd, all)
	} else {
		all()
	}
}

// envAnnotation marks a flag that an environment variable LPUCTL_NAME can set.
const envAnnotation = "lpuctl_env"

// FromEnvironment lets LPUCTL_NAME set a flag that was not given.
func FromEnvironment(f *pflag.Flag) {
	f.Annotations = map[string][]string{envAnnotation: {"LPUCTL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}}
}

// Complete offers the values of a flag to shells.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	// The only error is an unknown flag, which the completion test would show.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteFile offers files for a command's one argument.
func CompleteFile(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// Prepare takes flags from the environment where they were not given, sets up logging,
// and lets SIGHUP end a command that does not take it.
func (a *App) Prepare(cmd *cobra.Command) error {
	heedHangUp(cmd)
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[envAnnotation]
		if f.Changed || len(names) == 0 {
			return
		}
		if value, ok := a.Env(names[0]); ok && value != "" {
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				bad = Usage("environment variable %s: %v", names[0], flagError(cmd, err))
			}
		}
	})
	if bad != nil {
		return bad
	}
	if err := a.setScreen(a.Env); err != nil {
		return err
	}
	if a.Root == "" {
		return Usage("--root is empty: give a directory, or leave it out")
	}
	root := filepath.Clean(string(a.Root))
	if strings.HasPrefix(root, "..") { // securejoin refuses such a root
		if absolute, err := filepath.Abs(root); err == nil {
			root = absolute
		}
	}
	a.Root = host.Root(root)
	if info, err := os.Stat(root); err == nil && info.Mode().IsRegular() && a.Replay != nil {
		if err := a.Replay(cmd); err != nil {
			return err
		}
	}
	return a.SetUpLog()
}

// SetUpLog makes the log of the flags.
func (a *App) SetUpLog() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.LogLevel)); err != nil {
		return Usage("--log-level %s: expected debug, info, warn or error", a.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch a.LogFormat {
	case "text":
		a.Log = slog.New(slog.NewTextHandler(a.Err, options))
	case "json":
		a.Log = slog.New(slog.NewJSONHandler(a.Err, options))
	default:
		return Usage("--log-format %s: expected text or json", a.LogFormat)
	}
	return nil
}

// ScanOptions adds what the config says to the options of a scan.
func (a *App) ScanOptions(options discovery.Options) (discovery.Options, error) {
	if err := a.LoadConfig(); err != nil {
		return options, err
	}
	options.Models = a.Config.Models
	options.Policy = a.Config.Health.Policy()
	options.RingTable = a.RingTable
	// A command may have no --ring-table. The variable means the same file to all commands.
	if options.RingTable == "" {
		options.RingTable, _ = a.Env(ringTableVariable)
	}
	var err error
	if table := a.Config.Ring.Table; options.RingTable == "" && table != "" {
		options.RingTable, err = a.Root.Resolve(table)
	}
	return options, err
}

// Remembering is ScanOptions, with what is known of the LPUs from before: by serve, and by
// the names in the spec in place. It returns the memory of serve too.
func (a *App) Remembering(options discovery.Options) (discovery.Options, node.Memory, error) {
	options, err := a.ScanOptions(options)
	if err != nil {
		return options, node.Memory{}, err
	}
	file, err := a.LocateSpec()
	if err != nil {
		return options, node.Memory{}, err
	}
	memory, err := node.RememberIn(a.Root)
	memory.SetApart = a.Config.Leases.Cordons()
	if err == nil {
		options.Seen, err = memory.Seen()
	}
	options.Known = func() (addresses []pci.Address, err error) {
		data, err := file.Read()
		for _, d := range cdi.Devices(data) {
			if address, err := cdi.ParseAddressName(d.Name); err == nil {
				addresses = append(addresses, address)
			}
		}
		return addresses, err
	}
	return options, memory, err
}

// ScanOnly reads the config and the machine. It returns the memory too, which knows the
// cordons.
func (a *App) ScanOnly(ctx context.Context, options discovery.Options) (*discovery.Inventory, node.Memory, error) {
	options, memory, err := a.Remembering(options)
	if err != nil {
		return nil, memory, err
	}
	if a.apart == nil {
		a.apart = &discovery.Apart{}
	}
	options.Apart = a.apart
	inv, err := discovery.Scan(ctx, string(a.Root), options)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		return nil, memory, err
	}
	switch err := memory.Judge(inv, *options.Policy, host.SinceBoot()); {
	case host.IsShortage(err):
		return nil, memory, err
	case err != nil:
		a.Log.Warn("what serve has seen of the LPUs cannot be read; they are judged by what is read now, and some that have gone "+
			"may not be named", "error", err,
			"remedy", "rm "+filepath.Join(memory.Dir, node.HealthFile)+"; lpuctl serve writes it again if it runs")
	}
	a.Log.Debug("scanned", "root", a.Root, "lpus", len(inv.LPUs), "problems", len(inv.Problems))
	return inv, memory, nil
}

// Pods is what asks which pods of this node have which LPUs. The config was read.
func (a *App) Pods(memory node.Memory) (*pods.Node, error) {
	spec, err := a.LocateSpec()
	if err != nil {
		return nil, err
	}
	sockets, err := a.Root.Resolve(a.Config.Serve.PluginDir)
	return &pods.Node{
		Root: a.Root, StateDir: memory.Dir, SpecDir: filepath.Dir(spec.Path), PluginDir: sockets,
		PodResources: a.Config.Serve.PodResources, Log: a.Log,
	}, err
}

// RingTableFlag lets a command take another ring table.
func (a *App) RingTableFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.RingTable, "ring-table", "", "use this ring table `FILE` in place of the node's")
	FromEnvironment(cmd.Flags().Lookup("ring-table"))
}
