package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpPage is what --help says of one command, for programs that make manual pages of it.
type helpPage struct {
	Path     string     `json:"path"` // "lpuctl cdi refresh"
	Usage    string     `json:"usage"`
	Short    string     `json:"short"`
	Long     string     `json:"long,omitempty"`
	Example  string     `json:"example,omitempty"`
	Flags    []helpFlag `json:"flags"` // its own and, of the root, the global ones
	Commands []helpPage `json:"commands"`
	// Program is the program that the command becomes, which has a page of the same name; or
	// its own name, if it does something by itself though it has commands.
	Program string `json:"program,omitempty"`
}

// ProgramAnnotation is the annotation of a command that becomes another program, with its
// name, and of the root of a program that does something by itself.
const ProgramAnnotation = "lpuctl_program"

type helpFlag struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand,omitempty"`
	Value     string `json:"value,omitempty"` // absent: a switch
	Usage     string `json:"usage"`
	Default   string `json:"default,omitempty"`
	Variable  string `json:"variable,omitempty"` // environment variable that stands for it
}

// newHelpTreeCommand makes the hidden command by which manual pages are made.
func newHelpTreeCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "help-tree",
		Short:   "Print the help of all commands as JSON, to make manual pages of",
		Hidden:  true,
		Example: `  lpuctl help-tree`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WriteDocument(FormatJSON, helpOf(cmd.Root()))
		},
	}
}

func helpOf(cmd *cobra.Command) helpPage {
	p := helpPage{
		Path: cmd.CommandPath(), Usage: cmd.UseLine(), Short: cmd.Short, Long: cmd.Long, Example: cmd.Example,
		Flags: []helpFlag{}, Commands: []helpPage{}, Program: cmd.Annotations[ProgramAnnotation],
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			p.Flags = append(p.Flags, helpOfFlag(f))
		}
	})
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			p.Commands = append(p.Commands, helpOf(sub))
		}
	}
	return p
}

func helpOfFlag(f *pflag.Flag) helpFlag {
	value, usage := pflag.UnquoteUsage(f)
	h := helpFlag{Name: f.Name, Shorthand: f.Shorthand, Value: value, Usage: usage, Default: f.DefValue}
	if value == "" || f.DefValue == "[]" || f.DefValue == "0" {
		h.Default = "" // of a switch, an empty list, a number whose default the usage tells
	}
	if names := f.Annotations[envAnnotation]; len(names) > 0 {
		h.Variable = names[0]
	}
	return h
}
