package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// NewLogLevel returns the command log-level.
func NewLogLevel() *cobra.Command {
	var socket string
	var out show.Output
	cmd := &cobra.Command{
		Use:   "log-level [debug|info|warn|error]",
		Short: "Show or change the log level of a running agent",
		Long: `log-level shows the log level of a running agent, or changes it, over the agent's unix socket. The level holds until the next change
or the end of the agent; at its next start --log-level applies again.

Only the agent's user can open the socket. No network listener can change the level.`,
		Example:   "  contiv-agent log-level\n  contiv-agent log-level debug\n  contiv-agent log-level -o json",
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
				if err := control.SetLogLevel(ctx, at, args[0]); err != nil || out.IsText() {
					return err
				}
			}
			level, err := control.FetchLogLevel(ctx, at)
			if err != nil {
				return err
			}
			answer := map[string]string{"level": strings.ToLower(level)}
			return out.Print(cmd.OutOrStdout(), answer, func(w io.Writer) { fmt.Fprintln(w, answer["level"]) })
		},
	}
	out.AddFlag(cmd)
	addSocket(cmd.Flags(), &socket)
	return cmd
}
