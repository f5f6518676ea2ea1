package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/top"
)

// program is how people call it.
const program = "lpuctl-top"

// app is what the commands of lpuctl-top share.
type app struct {
	cli.App

	in io.Reader
}

// run is the whole program: arguments in, exit code out.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, env func(string) (string, bool)) int {
	a := &app{cli.App{Terminal: cli.Terminal{Program: program, Out: out, Err: errOut}, Env: env}, in}
	_, err := a.Execute(ctx, newRootCommand(a, args...), args)
	return cli.CodeOf(err)
}

// options are the flags of the screen.
type options struct {
	once    bool
	metrics string
	format  cli.Format
}

// newRootCommand makes the tree of commands, of which args call one. Without one the
// screen is shown.
func newRootCommand(a *app, args ...string) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:         program,
		Annotations: map[string]string{cli.ProgramAnnotation: program},
		Short:       "Show the LPUs of this node on a screen that stays up to date",
		Long: `lpuctl-top shows the LPUs in the order of their ring: temperature and power, as bars against the sensors' own limits, link,
health, who has each, by lease, pod, container or process, and since when; and what sensors said in the last ten minutes. ? shows the keys,
q ends it. lpuctl top does the same.

It looks once a second, and writes nothing. Sensors are those that serve, exporter or lpuctl-dra serve has read, by its
metrics at --metrics; where none of them runs, they are read every ten seconds, as list --watch does.
--once prints one screen of 80 columns as plain text, or with -o json or yaml a document with all that is known. It reads the sensors
itself, as list does. What is not known is - on the screen, and absent from the document.
The screen needs a terminal: where there is none, or it cannot be drawn on (TERM=dumb), use --once.
NO_COLOR leaves out colours, and a locale without UTF-8 has bars of ASCII.

Exit codes: 0 done; 1 failed; 2 usage; 4 no LPU on this node (--once).`,
		Example: `  lpuctl-top
  lpuctl-top --once
  lpuctl-top --once -o json | jq -r '.lpus[] | select(.holder) | [.name, .holder.name] | @tsv'
  watch -n 5 lpuctl-top --once         # on a terminal that cannot be drawn on`,
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.once, "once", false, "print one screen, and end")
	flags.StringVar(&o.metrics, "metrics", "127.0.0.1:9477",
		"take what sensors say from the metrics of lpuctl serve or exporter at `ADDRESS`; empty: read the sensors here, as with --root alone")
	cli.FromEnvironment(flags.Lookup("metrics"))
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &o.format)
	a.SetUpRoot(cmd, cli.Commands{}, args)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.once {
			return showOnce(cmd.Context(), a, o.format)
		}
		return showScreen(cmd, a, &o)
	}
	return cmd
}

// showOnce prints one look.
func showOnce(ctx context.Context, a *app, f cli.Format) error {
	look, err := lookOnce(ctx, a)
	if err != nil {
		return err
	}
	if f.IsDocument() {
		err = a.WriteDocument(f, look)
	} else if len(look.LPUs) > 0 {
		view := top.View{Style: a.style()}
		_, err = io.WriteString(a.Out, view.Plain(look, time.Now()))
	}
	if err == nil && len(look.LPUs) == 0 {
		err = cli.NoLPU(a.Root)
	}
	return err
}

// showScreen shows looks on the terminal until a key or a signal ends it.
func showScreen(cmd *cobra.Command, a *app, o *options) error {
	switch {
	case o.format != cli.FormatTable:
		return cli.Usage("-o %s goes with --once only: a screen is for people", o.format)
	case !cli.IsTerminal(a.Out) || !isTerminal(a.in):
		return cli.Usage("there is no terminal to show a screen on: use --once")
	case a.variable("TERM") == "" || a.variable("TERM") == "dumb":
		return cli.Usage("this terminal cannot be drawn on (TERM=%s): use --once, or watch -n 5 lpuctl top --once", a.variable("TERM"))
	}
	address := o.metrics
	if a.Root != "/" && !cmd.Flags().Changed("metrics") {
		address = ""
	}
	return draw(cmd.Context(), a, address)
}

// variable returns the value of a variable of the environment; "" if it is not set.
func (a *app) variable(name string) string {
	value, _ := a.Env(name)
	return value
}

func (a *app) style() top.Style { return top.Style{UTF8: !a.Screen.ASCII, Colour: a.Screen.ColorOut} }

func isTerminal(r io.Reader) bool {
	f, isFile := r.(*os.File)
	return isFile && cli.IsTerminal(f)
}
