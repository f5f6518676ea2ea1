package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newCompletionCommand makes the command that prints completion scripts of a program.
func newCompletionCommand(a *App, program string) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell",
		Long: strings.ReplaceAll(`completion prints the script by which bash, fish, zsh or powershell completes commands, flags and their values,
the LPUs of this node among them. Packages install the scripts of the first three. Without a package, in each
new shell:

  bash         source <(lpuctl completion bash), with the package bash-completion
  fish         lpuctl completion fish | source
  zsh          source <(lpuctl completion zsh), after autoload -U compinit && compinit
  powershell   lpuctl completion powershell | Out-String | Invoke-Expression`, "lpuctl", program),
		Example: strings.ReplaceAll(`  source <(lpuctl completion bash)
  lpuctl completion fish > ~/.config/fish/completions/lpuctl.fish`, "lpuctl", program),
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "fish", "powershell", "zsh"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Out)
			default:
				return root.GenZshCompletion(a.Out)
			}
		},
	}
}
