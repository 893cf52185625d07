// Package query holds the commands that read a running agent, or simulated nodes, and show the result; and the same commands for the agents of a cluster.
//
// Invariant: only log-level and release change something, and only in an agent.
package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
)

// statusFlags are the flags of status.
type statusFlags struct {
	socket              string
	namespaces          []string
	all, history, watch bool
	wait                time.Duration
	out                 show.Output
}

// NewStatus returns the command status.
func NewStatus() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [services|policies] [NAMESPACE/NAME | NAMESPACE/ ...]",
		Short: "Show the state of a running agent: sources, sync, each Service and policy, with reasons",
		Long: `status queries a running agent over its unix socket. Without arguments it shows the agent, and every Service and
policy that is not configured, or has remarks; with names it shows these Services, with "policies" before them these policies, and with a namespace and
a slash the Services and policies of this namespace. "services" or "policies" alone shows all of them; --all shows every Service and policy. With -o wide each has
a second line: addresses, ports and endpoints, or tier, rules and endpoints.

The node's line says "healthy" if no object or value is refused, failed or pending. Otherwise it counts objects and values by
state: FAILED, RETRYING, INVALID, UNIMPLEMENTED, PENDING, REFUSED (an object is not served or enforced, for a reason in the
object) and PARTIAL (a part of an object is not).

With --watch, status shows the state again whenever it changes, until it is stopped.

Exit code 3: the agent is not in sync, or not healthy; with --wait: still not when the time is over. 1: no agent answers.`,
		Example: `  contiv-agent status
  contiv-agent status default/web
  contiv-agent status policies -n prod
  contiv-agent status --all -o json
  contiv-agent status -o name
  contiv-agent status --watch
  contiv-agent status --history
  contiv-agent status --wait 1m`,
		ValidArgsFunction: f.complete,
		RunE:              f.run,
	}
	f.out.AddListFlag(cmd)
	fs := cmd.Flags()
	addSocket(fs, &f.socket)
	fs.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "show only Services and policies of these namespaces")
	fs.DurationVar(&f.wait, "wait", 0, "wait up to that long until the agent is in sync and healthy (0: do not wait)")
	fs.BoolVarP(&f.watch, "watch", "w", false, "show the state whenever it changes, until the command is stopped")
	fs.BoolVar(&f.all, "all", false, "show every Service and policy")
	fs.BoolVar(&f.history, "history", false, "also show past transactions and their operations")
	return cmd
}

func (f *statusFlags) run(cmd *cobra.Command, args []string) error {
	fetch := func(ctx context.Context) (*status.Status, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return control.FetchStatus(ctx, flags.StatusSocket(f.socket), f.history)
	}
	if f.watch && f.wait > 0 {
		return exit.Usage(errors.New("--watch and --wait exclude each other"))
	}
	if f.watch {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		return f.follow(cmd, args, fetch, tick.C)
	}
	if f.wait > 0 {
		fetch = untilHealthy(fetch, f.wait)
	}
	st, err := fetch(cmd.Context())
	if err != nil {
		return err
	}
	well := st.InSync && st.Healthy
	if err := f.print(cmd.OutOrStdout(), st, args); err != nil {
		return err
	}
	if !well {
		return &exit.Error{Code: exit.Differs}
	}
	return nil
}

// print prints the selected part of a status.
func (f *statusFlags) print(w io.Writer, st *status.Status, args []string) error {
	if err := show.Select(st, args, f.namespaces); err != nil {
		return exit.Usage(err)
	}
	all := f.all || f.out.IsWide() || len(args) > 0
	return f.out.PrintNamed(w, st, func(w io.Writer) { show.Status(w, st, all, f.out.IsWide() || f.all) }, func() []string { return show.StatusNames(st) })
}

// follow prints a status after each tick if it differs from the last one, until the command is stopped. While no agent answers, it says so once.
func (f *statusFlags) follow(cmd *cobra.Command, args []string, fetch func(context.Context) (*status.Status, error), tick <-chan time.Time) error {
	last, silent := "", ""
	for {
		st, err := fetch(cmd.Context())
		switch {
		case cmd.Context().Err() != nil:
			return nil // it is stopped: that is how it ends
		case err != nil:
			if silent != err.Error() {
				fmt.Fprintln(cmd.ErrOrStderr(), terminal.Plain(err.Error()))
			}
			last, silent = "", err.Error()
		default:
			silent = ""
			if now, err := json.Marshal(st); err != nil || string(now) == last {
				break
			} else if last = string(now); f.out.IsText() {
				terminal.Clear(cmd.OutOrStdout())
			}
			if err := f.print(cmd.OutOrStdout(), st, args); err != nil {
				return err
			}
		}
		select {
		case <-tick:
		case <-cmd.Context().Done():
			return nil
		}
	}
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

// addSocket adds the flag for the socket of a running agent.
func addSocket(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
}
