package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// flagError says in plain words what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	e := Fail(ExitUsage, "see "+cmd.CommandPath()+" --help", "%w", err)
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := unknown.GetSpecifiedName()
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if meant := flagHabit(cmd, name); meant != "" {
			e.Remedy = "use " + meant
		} else if meant := nearest.Word(name, names); meant != "" {
			e.Remedy = "did you mean --" + meant + "?"
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && strings.Contains(err.Error(), "strconv.") {
		expected := "a whole number"
		if invalid.GetFlag().Value.Type() == "bool" {
			expected = "true or false"
		}
		e.Err = fmt.Errorf("--%s: expected %s, not %q", invalid.GetFlag().Name, expected, invalid.GetValue())
	}
	return e
}

// checkArguments makes wrong arguments, and unknown commands below a group, usage errors.
// A command that says nothing about its arguments has none. all makes the commands that
// are not there.
func checkArguments(cmd *cobra.Command, all func()) {
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		if cmd.HasSubCommands() {
			all()
			return unknownCommand(cmd, args[0])
		}
		e := Fail(ExitUsage, "usage: "+cmd.UseLine(), "an argument is missing")
		if len(args) > 0 {
			e.Err = fmt.Errorf("unexpected argument %q", args[len(args)-1])
		}
		if _, notNumber := strconv.Atoi(strings.Join(args, "")); notNumber == nil && cmd.Flags().Lookup("count") != nil {
			e.Remedy = "use -n " + args[0]
		}
		return e
	}
	for _, sub := range cmd.Commands() {
		checkArguments(sub, all)
	}
}

// unknownCommand names the command that was meant: one of that name in another group, or
// the nearest.
func unknownCommand(group *cobra.Command, name string) error {
	e := Fail(ExitUsage, "see "+group.CommandPath()+" --help", "unknown command %q for %q", name, group.CommandPath())
	var names, same []string
	eachCommand(group.Root(), func(c *cobra.Command) {
		if c.Name() == name || slices.Contains(c.Aliases, name) {
			same = append(same, c.CommandPath())
		}
		if c.Parent() == group {
			names = append(append(names, c.Name()), c.Aliases...)
		}
	})
	if meant, ok := commandHabits()[group.CommandPath()+" "+name]; ok {
		e.Remedy = "use " + meant
		return e
	}
	if meant := nearest.Word(name, names); meant != "" {
		same = []string{meant}
	}
	if len(same) > 0 {
		e.Remedy = "did you mean " + strings.Join(same, " or ") + "?"
	}
	return e
}

func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		visit(sub)
		eachCommand(sub, visit)
	}
}

// newHelpCommand is cobra's, but for an unknown command, which is a usage error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  lpuctl help cdi refresh",
		Args:    cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			found, _, _ := cmd.Root().Find(args)
			var names []string
			for _, sub := range found.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, _ := cmd.Root().Find(args)
			if len(rest) > 0 {
				return unknownCommand(found, rest[0])
			}
			return found.Help()
		},
	}
}
