package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

func newPlan() *cobra.Command {
	var manifests []string
	var node, socket string
	var sessions bool
	var flags agentFlags
	var out output
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what the agent would change in VPP, and change nothing",
		Long: `plan reads manifests, compares what they ask for with what VPP has, and prints the operations in the order they would be
executed. VPP is only read. Without --vpp-socket the VPP is an embedded, empty one.

Exit code 0: nothing to change; 3: there are changes.`,
		Example: `  contiv-agent plan --manifests examples/guestbook --node node-1
  contiv-agent plan --manifests new/ --node "$(hostname)" --vpp-socket /run/vpp/api.sock -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if len(manifests) == 0 {
				return usage(fmt.Errorf("--manifests is required"))
			}
			changes, err := manifest.Load(manifests...)
			if err != nil {
				return usage(err)
			}
			for _, ch := range changes {
				if ch.Err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "refused: %v\n", ch.Err)
				}
			}
			cfg, err := flags.config()
			if err != nil {
				return err
			}
			cfg.NodeName, cfg.Socket = nodeName(node), socket
			cfg.Sources = map[string]agent.Source{manifest.Name: agent.Fed{}}
			if socket == "" {
				v := sim.New(sim.Config{PuntLocal: true})
				defer v.Close()
				if err := plumb(&cfg, v).Apply(changes); err != nil {
					return err
				}
			}
			plan, err := agent.PlanFor(cmd.Context(), cfg, &event.Update{Source: manifest.Name, Changes: changes}, sessions)
			if err != nil {
				return err
			}
			if err := out.print(cmd.OutOrStdout(), plan, func(w io.Writer) { fmt.Fprint(w, plan) }); err != nil {
				return err
			}
			if !plan.Empty() {
				return &codeError{code: exitDiffers}
			}
			return nil
		},
	}
	flags.add(cmd)
	out.flag(cmd)
	cmd.Flags().StringSliceVar(&manifests, "manifests", nil, "folders or files with the cluster's objects (required)")
	cmd.Flags().StringVar(&node, "node", "", "name of this node (default: $NODE_NAME, or the name of the host)")
	cmd.Flags().BoolVar(&sessions, "sessions", false, "count the NAT sessions the changes would cut, too; VPP does not forward while it counts")
	cmd.Flags().StringVar(&socket, "vpp-socket", "", "binary-API socket of VPP (default: an embedded, empty VPP)")
	return cmd
}
