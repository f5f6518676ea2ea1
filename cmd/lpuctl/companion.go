package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

// companion is a program of its own that a command of lpuctl becomes, by its name. What it
// links would make every command of lpuctl larger and slower to start.
type companion string

// annotation marks the command that becomes the program: the manual has the program's page
// in place of the command's.
func (c companion) annotation() map[string]string {
	return map[string]string{cli.ProgramAnnotation: string(c)}
}

// become executes the other program with these arguments in place of this one. It returns
// only if it cannot.
func (c companion) become(args []string) error {
	program, err := c.find()
	if err != nil {
		return err
	}
	return unix.Exec(program, append([]string{string(c)}, args...), os.Environ())
}

// find looks for the other program beside this one, then where the shell would.
func (c companion) find() (string, error) {
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), string(c)); unix.Access(beside, unix.X_OK) == nil {
			return beside, nil
		}
	}
	return exec.LookPath(string(c))
}

// complete asks the other program, in the way that shells ask a program of cobra. It
// answers with a line for each offer, and last with a colon and what to do besides.
func (c companion) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	program, err := c.find()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ask := append(append([]string{cobra.ShellCompRequestCmd}, args...), typed)
	output, err := exec.CommandContext(cmd.Context(), program, ask...).Output()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []string
	for line := range strings.SplitSeq(string(output), "\n") {
		directive, last := strings.CutPrefix(line, ":")
		if number, err := strconv.Atoi(directive); last && err == nil {
			return offers, cobra.ShellCompDirective(number)
		}
		offers = append(offers, line)
	}
	return nil, cobra.ShellCompDirectiveError
}
