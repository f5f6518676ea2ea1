package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// mend shows the commands of all remedies, runs them after a yes, and looks again.
func (o *doctorOptions) mend(ctx context.Context, a *app, in io.Reader, links []string) error {
	d, err := o.diagnose(ctx, a, links)
	if err != nil {
		return err
	}
	fixes := d.Fixes(usedBy(ctx, a))
	if len(fixes) == 0 {
		return o.show(a, d)
	}
	commands := showFixes(a, fixes)
	if len(commands) == 0 {
		a.Say("no command mends this")
		return cli.Found()
	}
	if a.replay != nil {
		a.Say("nothing was run: a bundle can only be looked at")
		return cli.Found()
	}
	if yes, err := askYes(in, a.Err, "Run "+cli.Plural(len(commands), "command")+"?"); err != nil || !yes {
		a.Say("nothing was run")
		return cmp.Or(err, cli.Found())
	}
	for _, command := range commands {
		fmt.Fprintln(a.Err, "+", command)
		if err := a.carryOut(ctx, command); err != nil {
			return cli.WithRemedy(fmt.Errorf("%s: %w", command, err), "see what it says; the commands after it were not run")
		}
	}
	if d, err = o.diagnose(ctx, a, links); err != nil {
		return err
	}
	return o.show(a, d)
}

// showFixes prints what will be done, and returns the commands.
func showFixes(a *app, fixes []doctor.Fix) (commands []string) {
	for _, f := range fixes {
		fmt.Fprintf(a.Out, "# %s: %s\n", f.Link, shell.Printable(f.Finding.String()))
		switch {
		case len(f.Commands) == 0:
			fmt.Fprintf(a.Out, "#   by hand: %s\n", shell.Printable(f.Finding.Remedy))
		case a.Root != "/" && !f.IsOurs():
			fmt.Fprintf(a.Out, "#   on the machine of %s: %s\n", a.Root, shell.Printable(f.Finding.Remedy))
		case f.Kept != "":
			fmt.Fprintf(a.Out, "#   not now: %s\n#   later: %s\n", shell.Printable(f.Kept), shell.Printable(f.Finding.Remedy))
		default:
			for _, command := range f.Commands {
				fmt.Fprintln(a.Out, shell.Printable(command))
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// carryOut runs one command of a remedy. An lpuctl in it is this one, at the same root.
func (a *app) carryOut(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdout, cmd.Stderr = a.Out, a.Err
	cmd.Env = append(os.Environ(), "LPUCTL_ROOT="+string(a.Root))
	if own, err := os.Executable(); err == nil {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(own)+":"+os.Getenv("PATH"))
	}
	err := cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == cli.ExitFound {
		return nil // it has worked, and says what else it found
	}
	return err
}

// usedBy returns what says who uses an LPU, or that it may be in use; "" for what is not
// about an LPU, and for one that is free.
func usedBy(ctx context.Context, a *app) func(subject string) string {
	inv, err := a.scan(ctx)
	if err != nil {
		return func(string) string { return "it is not known who uses what: " + err.Error() }
	}
	node.FindUsers(ctx, a.Root, inv)
	pods, err := podsLPUs(ctx, a)
	text := ""
	if err != nil {
		text = "it is not known which LPUs pods have: " + err.Error()
	}
	return func(subject string) string {
		for i := range inv.LPUs {
			if l := &inv.LPUs[i]; subject == l.Name || subject == l.Address.String() {
				return cmp.Or(inUse(l, pods[l.Address]), text)
			}
		}
		return ""
	}
}

// inUse says who has an LPU; pod has it from Kubernetes.
func inUse(l *discovery.LPU, pod string) string {
	switch {
	case pod != "":
		return fmt.Sprintf("%s is in use by %s", l.Name, pod)
	case l.Leased != nil:
		return fmt.Sprintf("%s is leased to %s", l.Name, l.Leased)
	case len(l.Users) > 0:
		return fmt.Sprintf("%s is in use by %s", l.Name, l.Users[0])
	case l.UsersHidden:
		return fmt.Sprintf("this user cannot see whether %s is in use; run it as root", l.Name)
	}
	return ""
}
