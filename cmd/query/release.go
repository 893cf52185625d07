package query

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// NewRelease returns the command release.
func NewRelease() *cobra.Command {
	var socket string
	var out show.Output
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Carry out removals that a running agent holds, and end quarantines",
		Long: `release carries out the removals that the agent of this node holds, because a source would remove many objects at once
(--hold-removals of run). If the first sync is held, release starts it. It also lets the values in again that the agent keeps out because VPP ended
twice when it got them (--quarantine of run); the agent tries them within a minute. It prints what was held or kept out.

Before that, look at the source: contiv-agent status says what would be removed. If the API server lost the objects by mistake, restore them
instead: when they are back, the agent holds nothing any more, and nothing was removed.

Only the agent's user can open the socket.`,
		Example: "  contiv-agent release\n  contiv-agent release -o json",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			released, err := control.Release(ctx, flags.StatusSocket(socket))
			if err != nil {
				return err
			}
			answer := struct {
				Released []string `json:"released"`
			}{append([]string{}, released...)}
			return out.Print(cmd.OutOrStdout(), &answer, func(w io.Writer) {
				if len(released) == 0 {
					fmt.Fprintln(w, "the agent holds nothing, and keeps nothing out")
				}
				for _, line := range answer.Released {
					fmt.Fprintln(w, "released: "+line)
				}
			})
		},
	}
	out.AddFlag(cmd)
	addSocket(cmd.Flags(), &socket)
	return cmd
}
