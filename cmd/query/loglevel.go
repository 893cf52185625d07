package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
)

// NewLogLevel returns the command log-level.
func NewLogLevel() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "log-level [debug|info|warn|error]",
		Short: "Show or change the log level of a running agent",
		Long: `log-level shows the log level of a running agent, or changes it, over the agent's unix socket. The level holds until the next change
or the end of the agent; at its next start --log-level applies again.

Only the agent's user can open the socket. No network listener can change the level.`,
		Example:   "  contiv-agent log-level\n  contiv-agent log-level debug",
		ValidArgs: []string{"debug", "info", "warn", "error"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains([]string{"debug", "info", "warn", "error"}, args[0]) {
				return exit.Usage(errors.New("log-level: want debug, info, warn or error, or nothing"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			at := flags.StatusSocket(socket)
			if len(args) == 1 {
				return control.SetLogLevel(ctx, at, args[0])
			}
			level, err := control.FetchLogLevel(ctx, at)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), strings.ToLower(level))
			return nil
		},
	}
	addSocket(cmd.Flags(), &socket)
	return cmd
}
