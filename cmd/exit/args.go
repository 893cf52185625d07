package exit

import (
	"fmt"

	"github.com/spf13/cobra"
)

// NoArgs refuses arguments of a command that takes none.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%s takes no arguments, got %q\nsee '%s --help'", cmd.CommandPath(), args, cmd.CommandPath()))
	}
	return nil
}
