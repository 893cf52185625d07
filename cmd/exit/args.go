package exit

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// NoArgs refuses arguments of a command that takes none.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%s takes no arguments, got %q\nsee '%s --help'", cmd.CommandPath(), args, cmd.CommandPath()))
	}
	return nil
}

// Groups makes each command below root that only has subcommands refuse an unknown one, with exit code 2 and similar names. Without a subcommand they print their help.
func Groups(root *cobra.Command) {
	for _, sub := range root.Commands() {
		Groups(sub)
	}
	if root.Runnable() || !root.HasSubCommands() {
		return
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		text := fmt.Sprintf("unknown command %q", args[0])
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += fmt.Sprintf(": did you mean %s?", strings.Join(near, ", "))
		}
		return Usage(fmt.Errorf("%s\nsee '%s --help'", text, cmd.CommandPath()))
	}
	root.Args = cobra.ArbitraryArgs
}

// FlagError is the error of a wrong flag, with the command that explains the flags.
func FlagError(cmd *cobra.Command, err error) error {
	return Usage(fmt.Errorf("%w\nsee '%s --help'", err, cmd.CommandPath()))
}
