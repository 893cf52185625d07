package query

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/live"
)

// runLive compares the path of a real packet with the prediction. Without a source of objects it shows VPP's path alone.
func (f *traceFlags) runLive(cmd *cobra.Command, args []string, ask live.Ask) error {
	if len(f.Manifests) == 0 && f.Kubeconfig == "" && f.Context == "" && len(f.Ignored) == 0 && !f.InCluster && !f.API {
		return f.live.Run(cmd, args, ask, nil, &f.out)
	}
	if !f.API { // the plugin has the settings already
		st, err := control.FetchStatus(cmd.Context(), flags.StatusSocket(f.live.Socket), false)
		if err != nil {
			return err
		}
		if err := f.applySettings(st); err != nil {
			return err
		}
	}
	cluster, err := f.Load(cmd.Context(), &f.Agent, false, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer cluster.Close()
	return f.live.Run(cmd, args, ask, cluster.AnswerStep, &f.out)
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
