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

// draProgram is the program of the DRA driver. It is one of its own because what it links
// would make every command of lpuctl start two to three times slower.
const draProgram = "lpuctl-dra"

func newDRACommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dra [COMMAND]",
		Short: "Hand out LPUs to Kubernetes pods: the DRA driver",
		Long: `dra runs ` + draProgram + `, which is a program and a package of its own. Its serve is the driver that a cluster runs on each node;
its other commands show without a cluster what the scheduler is told of this node, and where a claim would be placed.`,
		Example: `  lpuctl dra slices                  # what the scheduler would be told of this node
  lpuctl dra plan claim.yaml         # which LPUs a claim would get
  lpuctl dra --help`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true, // they are the other program's
		ValidArgsFunction:  completeDRA,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := findDRA()
			if err == nil {
				err = unix.Exec(program, append([]string{draProgram}, args...), os.Environ())
			}
			return cli.Fail(cli.ExitFailed, "install the package "+draProgram+" beside lpuctl; in a cluster the Helm chart runs it, with mode: dra",
				"%s cannot be run: %w", draProgram, err)
		},
	}
}

// findDRA looks for the other program beside this one, then where the shell would.
func findDRA() (string, error) {
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), draProgram); unix.Access(beside, unix.X_OK) == nil {
			return beside, nil
		}
	}
	return exec.LookPath(draProgram)
}

// completeDRA asks the other program, in the way that shells ask a program of cobra. It
// answers with a line for each offer, and last with a colon and what to do besides.
func completeDRA(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	program, err := findDRA()
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
