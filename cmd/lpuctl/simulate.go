package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
)

func newSimulateCommand(a *app) *cobra.Command {
	var node simulate.Node
	var faults []string
	help, profiles, faultNames := kinds()
	cmd := &cobra.Command{
		Use:     "simulate DIR",
		Aliases: []string{"sim"},
		Short:   "Write a simulated node; any command then runs on it with --root DIR",
		Long: `simulate writes a directory tree that looks like a server with LPUs: sysfs with its links and formats,
device nodes (real ones, where the caller may make them) and what the software installs. DIR must be empty
or not exist.

` + help,
		Example: `  lpuctl simulate /tmp/node
  lpuctl --root /tmp/node list
  lpuctl simulate /tmp/sick --fault unbound@2 --fault recovery@5
  lpuctl simulate /tmp/big --lpus 64 --functions 1000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, text := range faults {
				fault, err := simulate.ParseFault(text)
				if err != nil {
					return invalidNode(err)
				}
				node.Faults = append(node.Faults, fault)
			}
			p := a.Progress("PCI functions")
			node.Progress = func(done, total int) error {
				p.Show(done, total)
				return cmd.Context().Err()
			}
			result, err := node.Write(args[0])
			p.Clear()
			if errors.Is(err, context.Canceled) {
				return fmt.Errorf("interrupted: the simulated node in %s is not complete", args[0])
			}
			if err != nil {
				return invalidNode(err)
			}
			tellSimulated(&a.Terminal, args[0], node.Profile, result)
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f := cmd.Flags()
	f.StringVar(&node.Profile, "profile", "orion", "`PROFILE` of the server")
	f.Func("lpus", "`NUMBER` of LPUs, 1 to 512 (default: the profile's own)", atLeastOne(&node.LPUs, "a number from 1 to 512"))
	f.Func("functions", "`NUMBER` of PCI functions of the whole tree (default: what the profile needs)",
		atLeastOne(&node.Functions, "a number of at least 1"))
	f.StringArrayVar(&faults, "fault", nil, "break something: `NAME@INDEX` (repeatable)")
	f.Func("numbers", "device numbers of the LPUs' nodes, `MAJOR:MINOR,...`; 10:229,10:237 (fuse, loop-control) can really be opened",
		func(text string) error {
			var err error
			node.Numbers, err = parseNumbers(text)
			return err
		})
	cli.Complete(cmd, "profile", profiles...)
	cli.Complete(cmd, "fault", faultNames...)
	for _, number := range []string{"lpus", "functions", "numbers"} {
		cli.Complete(cmd, number)
	}
	return cmd
}

func tellSimulated(t *cli.Terminal, dir, profile string, r simulate.Result) {
	t.Say("simulated node in %s: profile %s, %s among %s", dir, profile, cli.Plural(r.LPUs, "LPU"), cli.Plural(r.Functions, "PCI function"))
	if !r.DeviceNodes {
		t.Say("device nodes cannot be made by this user, so there is no %s and nodes stay unverified", filepath.Join(dir, "dev"))
	}
	t.Say("try: lpuctl --root %s list", dir)
}

// invalidNode makes the error about a node that cannot be simulated one of wrong usage
// (exit 2), with its remedy.
func invalidNode(err error) error {
	if e, ok := errors.AsType[*simulate.InvalidError](err); ok {
		return cli.Fail(cli.ExitUsage, e.Remedy, "%w", err)
	}
	return err
}

// atLeastOne reads the value of a flag. An explicit 0 is refused, because in a Node it
// means that no number is given.
func atLeastOne(into *int, expected string) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return errors.New("expected " + expected)
		}
		*into = n
		return nil
	}
}

// parseNumbers reads a comma list of device numbers.
func parseNumbers(text string) (list []simulate.Numbers, err error) {
	for numbers := range strings.SplitSeq(text, ",") {
		major, minor, _ := strings.Cut(numbers, ":")
		// Linux has 12 bits for major numbers and 20 for minor ones.
		ma, err1 := strconv.ParseUint(major, 10, 12)
		mi, err2 := strconv.ParseUint(minor, 10, 20)
		if err1 != nil || err2 != nil {
			return nil, errors.New("expected MAJOR:MINOR with numbers up to 4095:1048575, such as 10:229, and commas between")
		}
		list = append(list, simulate.Numbers{Major: uint32(ma), Minor: uint32(mi)})
	}
	return list, nil
}

// kinds returns the help text on profiles and faults, and the values that completion
// offers for each.
func kinds() (help string, profiles, faults []string) {
	var b strings.Builder
	b.WriteString("Profiles:\n")
	for _, p := range simulate.Profiles() {
		fmt.Fprintf(&b, "  %-19s %s\n", p.Name, p.Summary)
		profiles = append(profiles, p.Name)
	}
	b.WriteString("\nFaults, each with the index of an LPU (in order of PCI addresses, before the faults):")
	for _, k := range simulate.FaultKinds() {
		fmt.Fprintf(&b, "\n  %-19s %s", k.Name, k.Summary)
		faults = append(faults, k.Name+"@0")
	}
	return b.String(), profiles, faults
}
