package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// newHelp replaces cobra's own command, for which an unknown topic is no error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Long:    "Prints what redlock COMMAND --help prints.",
		Example: "  redlock help run\n  redlock help chaos run",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if topic, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, below := range documented(topic) {
					names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no command %s; redlock --help lists them", brief(strings.Join(args, " ")))
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes redlock's commands and flags in your shell",
		Long: `Prints a script for bash, zsh, fish or powershell. With it, the tab key completes commands and flags.

  bash        source <(redlock completion bash), in ~/.bashrc; it needs the package bash-completion
  zsh         redlock completion zsh > "${fpath[1]}/_redlock"
  fish        redlock completion fish > ~/.config/fish/completions/redlock.fish
  powershell  redlock completion powershell | Out-String | Invoke-Expression, in $PROFILE`,
		Example:   "  source <(redlock completion bash)",
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usage("%s needs one SHELL: %s", cmd.CommandPath(), strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(out)
			}
		},
	}
}

// noFiles is for arguments that are no files: a key of a lock cannot be completed.
func noFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}
