package query

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/embedded"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// NewPlan returns the command plan.
func NewPlan() *cobra.Command {
	var f planFlags
	var sessions bool
	var out show.Output
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print the changes that the agent would make in VPP, and make none",
		Long: `plan prints the operations that would make VPP equal to the desired state, in the order of execution, and executes none.

With --manifests it compares VPP with the desired state of these manifests. Without --vpp-socket the VPP is an embedded, empty one. Without
--manifests it makes the running agent of this node compare its whole VPP, over the agent's unix socket: there are changes if another
program has changed VPP, or VPP refuses a value.

The last line counts the changes. With -o name the output is the keys of the values that would change.

Exit code 0: nothing to change; 3: there are changes.`,
		Example: `  contiv-agent plan
  contiv-agent plan --manifests examples/guestbook --node node-1
  contiv-agent plan --manifests new/ --node "$(hostname)" --vpp-socket /run/vpp/api.sock -o json`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.plan(cmd, sessions)
			if err != nil {
				return err
			}
			var data any = plan
			if out.IsData() {
				data = show.DataOf(plan)
			}
			if err := out.PrintNamed(cmd.OutOrStdout(), data, func(w io.Writer) { show.Plan(w, plan) }, func() []string { return show.PlanNames(plan) }); err != nil {
				return err
			}
			if !plan.Empty() {
				return &exit.Error{Code: exit.Differs}
			}
			return nil
		},
	}
	f.AddFlags(cmd)
	out.AddNameFlag(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&f.manifests, "manifests", nil, "compare VPP with the desired state of these folders or files instead of a running agent's")
	fs.StringVar(&f.node, "node", "", "with --manifests: name of this node (default: $NODE_NAME, or the name of the host)")
	fs.BoolVar(&sessions, "sessions", false, "also count the NAT sessions that the changes would cut; VPP does not forward while it counts")
	fs.StringVar(&f.vppSocket, "vpp-socket", "", "with --manifests: binary-API socket of VPP (default: an embedded, empty VPP)")
	addSocket(cmd.Flags(), &f.status)
	return cmd
}

// planFlags select the desired state and the VPP to compare.
type planFlags struct {
	flags.Agent
	manifests               []string
	node, vppSocket, status string
}

func (f *planFlags) plan(cmd *cobra.Command, sessions bool) (*vppagent.Plan, error) {
	if len(f.manifests) == 0 {
		for _, name := range append(flags.AgentNames(), "node", "vpp-socket") {
			if cmd.Flags().Changed(name) {
				return nil, exit.Usage(fmt.Errorf("--%s needs --manifests; a running agent uses its own flags", name))
			}
		}
		return control.FetchPlan(cmd.Context(), flags.StatusSocket(f.status), sessions)
	}
	changes, err := manifest.LoadUntil(cmd.Context(), f.manifests...)
	if err != nil {
		return nil, exit.Usage(err)
	}
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "refused: %s\n", terminal.Plain(ch.Err.Error()))
		}
	}
	cfg, err := f.Config()
	if err != nil {
		return nil, err
	}
	cfg.NodeName, cfg.VPP.Socket = flags.NodeName(f.node), f.vppSocket
	if err := whatif.NodeAmong(changes, cfg.NodeName); err != nil {
		return nil, exit.Usage(err)
	}
	cfg.Sources = map[string]agent.Source{manifest.Name: agent.Fed{}}
	if f.vppSocket == "" {
		v := sim.New(sim.Config{PuntLocal: true})
		defer v.Close()
		if err := embedded.Plumb(&cfg, v).Apply(changes); err != nil {
			return nil, err
		}
	}
	return agent.PlanFor(cmd.Context(), cfg, &event.Update{Source: manifest.Name, Changes: changes}, sessions)
}
