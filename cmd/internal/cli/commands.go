package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands make the commands of a program, by their names. To make one takes longer than
// many of them run, so only the one that is called is made.
type Commands map[string]func() *cobra.Command

// add makes those commands that a root does not have.
func (c Commands) add(root *cobra.Command, all func()) {
	for name, make := range c {
		if slices.ContainsFunc(root.Commands(), func(have *cobra.Command) bool { return have.Name() == name }) {
			continue
		}
		cmd := make()
		root.AddCommand(cmd)
		checkArguments(cmd, all)
	}
}

// called returns the word in the place of the command; "" if there is none, or a flag
// that is not one of these stands before it.
func called(global *pflag.FlagSet, args []string) string {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			return args[i]
		}
		name, long := strings.CutPrefix(args[i], "--")
		name, _, hasValue := strings.Cut(name, "=")
		f := global.Lookup(name)
		if !long || f == nil {
			return ""
		}
		if !hasValue && f.NoOptDefVal == "" {
			i++
		}
	}
	return ""
}
