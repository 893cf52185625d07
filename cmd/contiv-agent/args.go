package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usage(fmt.Errorf("%s takes no arguments, got %q\nsee '%s --help'", cmd.CommandPath(), args, cmd.CommandPath()))
	}
	return nil
}
