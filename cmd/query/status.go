// Package query holds the commands that read a running agent, or simulated nodes, and show the result; and the same commands for the agents of a cluster.
//
// Invariant: only log-level and release change something, and only in an agent.
package query

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// NewStatus returns the command status.
func NewStatus() *cobra.Command {
	var socket string
	var all, history bool
	var wait time.Duration
	var out show.Output
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE/NAME ...]",
		Short: "Show the state of a running agent: sources, sync, each Service and policy, with reasons",
		Long: `status queries a running agent over its unix socket. Without arguments it shows the agent, and every Service and
policy that is not configured, or has remarks; with names it shows these Services; with --all it shows every Service and policy.

The node's line says "healthy" if no object or value is refused, failed or pending. Otherwise it counts objects and values by
state: FAILED, RETRYING, INVALID, UNIMPLEMENTED, PENDING, REFUSED (an object is not served or enforced, for a reason in the
object) and PARTIAL (a part of an object is not).

Exit code 3: the agent is not in sync, or not healthy; with --wait: still not when the time is over. 1: no agent answers.`,
		Example: "  contiv-agent status\n  contiv-agent status default/web\n  contiv-agent status --all -o json\n  contiv-agent status --history\n  contiv-agent status --wait 1m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			fetch := func(ctx context.Context) (*status.Status, error) {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				return control.FetchStatus(ctx, flags.StatusSocket(socket), history)
			}
			if wait > 0 {
				fetch = untilHealthy(fetch, wait)
			}
			st, err := fetch(cmd.Context())
			if err != nil {
				return err
			}
			if err := selectServices(st, args); err != nil {
				return err
			}
			if err := out.Print(cmd.OutOrStdout(), st, func(w io.Writer) { show.Status(w, st, all || len(args) > 0) }); err != nil {
				return err
			}
			if !st.InSync || !st.Healthy {
				return &exit.Error{Code: exit.Differs}
			}
			return nil
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().StringVar(&socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to that long until the agent is in sync and healthy (0: do not wait)")
	cmd.Flags().BoolVar(&all, "all", false, "show every Service and policy")
	cmd.Flags().BoolVar(&history, "history", false, "also show past transactions and their operations")
	return cmd
}

// untilHealthy returns a fetch that repeats another one until the agent is in sync and healthy, for some time. Then it returns the last result.
func untilHealthy(fetch func(context.Context) (*status.Status, error), most time.Duration) func(context.Context) (*status.Status, error) {
	return func(ctx context.Context) (st *status.Status, err error) {
		over := time.After(most)
		for {
			if st, err = fetch(ctx); err == nil && st.InSync && st.Healthy {
				return st, nil
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-over:
				return st, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// selectServices reduces the status to the named Services, without policies; no names: no change.
func selectServices(st *status.Status, names []string) error {
	if len(names) == 0 {
		return nil
	}
	byName := map[string]status.Service{}
	for _, s := range st.Services {
		byName[s.Name] = s
	}
	st.Services, st.Policies = st.Services[:0], nil
	for _, name := range names {
		s, ok := byName[name]
		if !ok {
			return exit.Usage(fmt.Errorf("no Service %s; names are NAMESPACE/NAME", name))
		}
		st.Services = append(st.Services, s)
	}
	return nil
}
