package recommend

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	cmdflows "github.com/contiv-agent/contiv-agent/cmd/flows"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/event"
)

// OfCluster returns the command of the kubectl plugin. It asks the agents, or that of one node.
func OfCluster(agents *kubectl.Agents, node *string) *cobra.Command {
	var s settings
	compare := true
	cmd := &cobra.Command{
		Use:   "recommend",
		Short: "Make NetworkPolicies from the connections of a namespace that all nodes have seen",
		Long: about + `

The flows are those that the agents of all nodes have seen (run --flows), as "kubectl contiv flows" shows them. Connections that nobody opened while
agents watched are not allowed: look at the policies first, or stage them. Comments name nodes whose flows are missing or incomplete.

Comments at the end say which connections the policies would close in the cluster, for all packets, as contiv-agent verify --diff does. For that the
command reads the API server's objects, with the kubeconfig's rights; with --compare=false it does not.

Here -n is the namespace of the workloads, also in front of the command's name, and that of the agents is --agents-namespace.

Exit code 0: policies were written, perhaps none. 1: an agent does not answer, or does not watch flows, or the API server's objects cannot be read. 2: a flag
is wrong.`,
		Example: `  kubectl contiv policy recommend -n prod
  kubectl contiv policy recommend -n prod --staged -o yaml | kubectl apply -f -`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.checkNamespace(); err != nil {
				return err
			}
			seen, worst, err := cmdflows.Gather(cmd.Context(), agents, *node, s.filters(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if seen.Answered > 0 {
				var with *comparison
				if compare {
					with = &comparison{"the cluster", func() ([]event.Change, error) {
						changes, err := (&whatif.Source{Kubeconfig: agents.Kubeconfig, Context: agents.Context, API: true}).Changes(cmd.Context())
						if err != nil {
							err = fmt.Errorf("%w (--compare=false writes the policies without a comparison)", err)
						}
						return changes, err
					}}
				}
				err = s.writePolicies(cmd, seen, with)
			}
			if err == nil && worst != exit.OK {
				err = &exit.Error{Code: worst} // the cause is printed
			}
			return err
		},
	}
	s.addFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&agents.Namespace, "agents-namespace", agents.Namespace, "namespace of the agents")
	fs.BoolVar(&compare, "compare", true, "say which connections the policies would close in the cluster")
	return cmd
}
