package query

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/live"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/trace"
)

// loader loads clusters of manifests, and of the objects that exist now: those of the API server, or of the running agent with its settings.
func (f *traceFlags) loader(cmd *cobra.Command) whatif.Loader {
	return whatif.Loader{
		Load: func(paths []string) (*trace.Cluster, error) {
			from := f.Source
			from.Manifests = paths
			return from.Load(cmd.Context(), &f.Agent, f.toReply, cmd.ErrOrStderr())
		},
		Build: func(objects []event.Change) (*trace.Cluster, error) {
			return whatif.Build(cmd.Context(), objects, &f.Agent, f.toReply, cmd.ErrOrStderr())
		},
		Present: func() ([]event.Change, error) {
			if f.Given() {
				return f.Changes(cmd.Context())
			}
			if err := f.applyRunning(cmd.Context()); err != nil {
				return nil, err
			}
			return control.FetchObjects(cmd.Context(), flags.StatusSocket(f.live.Socket))
		},
	}
}

// runLive compares the path of a real packet with the prediction. An agent without objects predicts nothing: VPP's path is shown alone.
func (f *traceFlags) runLive(cmd *cobra.Command, args []string, ask live.Ask) error {
	l := f.loader(cmd)
	if f.live.NoPrediction {
		return f.live.Run(cmd, args, ask, nil, &f.out)
	}
	if f.Given() && !f.API { // the plugin has the settings already
		if err := f.applyRunning(cmd.Context()); err != nil {
			return err
		}
	}
	objects, err := l.Present()
	if err != nil && f.Given() {
		return err
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing is predicted: %s\n", terminal.Plain(err.Error()))
		return f.live.Run(cmd, args, ask, nil, &f.out)
	}
	cluster, err := l.Build(objects)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return f.live.Run(cmd, args, ask, cluster.AnswerStep, &f.out)
}

// applyRunning makes the agents of the prediction those of the agent at --status-socket.
func (f *traceFlags) applyRunning(ctx context.Context) error {
	st, err := control.FetchStatus(ctx, flags.StatusSocket(f.live.Socket), false)
	if err != nil {
		return err
	}
	return f.applySettings(st)
}

// applySettings makes the agents of the prediction those of a running agent.
func (f *traceFlags) applySettings(st *status.Status) error {
	if err := f.Apply(st.Settings); err != nil {
		return fmt.Errorf("the agent of %s has a setting that this program lacks: %w", st.Node, err)
	}
	if st.Ifs != nil && st.Ifs.Uplink == "" && st.Ifs.Host != "" {
		f.OutByHost()
	}
	return nil
}
