package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/shell"
)

// demoStep is a command of the demo.
type demoStep struct {
	words string // what it is for
	args  []string
	code  int // that it must exit with
}

// demoSteps are the main job on a sound server, then the same on one with two faulty
// cards, in two directories that do not exist yet.
func demoSteps(sound, sick string) []demoStep {
	on := func(node, words string, args ...string) demoStep {
		return demoStep{words: words, args: append([]string{"--root", node}, args...)}
	}
	found := on(sick, "An LPU that no container could use is left out of the spec, and the exit code says so:", "cdi", "refresh")
	found.code = cli.ExitFound
	return []demoStep{
		{words: "A server with eight LPUs on one ring, simulated as files in a directory:", args: []string{"simulate", sound}},
		on(sound, "Its LPUs. With --root any command looks at these files instead of at this machine:", "list"),
		on(sound, "How they are cabled:", "topology"),
		on(sound, "Somebody has LPU 2. Of the others, four that are cabled one to the next:",
			"allocate", "-n", "4", "--available", "0,1,3,4,5,6,7"),
		on(sound, "The CDI spec is written where container runtimes look for it:", "cdi", "refresh"),
		on(sound, "The devices that runtimes find in it:", "cdi", "list"),
		on(sound, "What a container gets with the device that allocate named:", "cdi", "explain", "lpu6-7-0-1"),
		{
			words: "The same server with one card in its factory image and one without its driver:",
			args:  []string{"simulate", sick, "--fault", "recovery@2", "--fault", "unbound@5"},
		},
		on(sick, "Its LPUs:", "list"),
		on(sick, "What is wrong with one of them, and what to do:", "describe", "lpu5"),
		found,
	}
}

func newDemoCommand(a *app) *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job on a simulated server: no hardware, no root",
		Long: `demo runs lpuctl on a simulated Orion server and shows each command, its output and, unless it is 0, its exit code. It looks at
nothing of this machine and changes nothing: the server is a temporary directory, which demo removes at its end.`,
		Example: `  lpuctl demo
  lpuctl demo --keep /tmp/servers      # to go on by hand: lpuctl --root /tmp/servers/orion list`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			dir := keep
			if keep == "" {
				if dir, err = os.MkdirTemp("", "lpuctl-demo-"); err != nil {
					return err
				}
				// A reader that stops to read, as head does, must not keep the directory
				// from being removed.
				signal.Ignore(syscall.SIGPIPE)
				defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }()
			}
			if err := demonstrate(cmd.Context(), a, demoSteps(filepath.Join(dir, "orion"), filepath.Join(dir, "sick"))); err != nil {
				return err
			}
			if keep == "" {
				fmt.Fprintln(a.Out, "\nThe directory is removed now. lpuctl demo --keep DIR keeps it, to go on by hand.")
			} else {
				fmt.Fprintf(a.Out, "\nBoth servers are still in %s. Go on by hand, for example: lpuctl --root %[1]s/orion health\n", shell.Quoted(dir))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "put the simulated servers into `DIR` and keep them")
	_ = cmd.MarkFlagDirname("keep") // fails on an unknown flag only
	return cmd
}

// demonstrate runs steps one after the other in this process, as the shell of a user
// whose environment has only a locale. It ends with the first one that has another
// exit code than it must have.
func demonstrate(ctx context.Context, a *app, steps []demoStep) error {
	out, locale := a.Out, func(name string) (string, bool) {
		if name == "LANG" || strings.HasPrefix(name, "LC_") {
			return a.Env(name)
		}
		return "", false
	}
	for _, step := range steps {
		words := []string{"lpuctl"}
		for _, arg := range step.args {
			words = append(words, shell.Quoted(arg))
		}
		line := strings.Join(words, " ")
		if _, err := fmt.Fprintf(out, "\n%s\n\n$ %s\n", step.words, line); err != nil {
			return err
		}
		var said bytes.Buffer
		code := run(ctx, step.args, &said, &said, locale)
		fmt.Fprint(out, beginning(said.String()))
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if code != 0 {
			fmt.Fprintf(out, "(exit code %d)\n", code)
		}
		if code != step.code {
			return fmt.Errorf("%s: exit code %d, expected %d", line, code, step.code)
		}
	}
	return nil
}

// beginning is a text, cut where it is longer than a screen.
func beginning(text string) string {
	const screen = 30 // lines
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= screen+1 { // behind the last newline there is nothing
		return text
	}
	return strings.Join(lines[:screen], "") + "... " + cli.Plural(len(lines)-screen-1, "more line") + "\n"
}
