package flows

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/flows/tally"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/flows"
)

// preview is the output of the staged command.
type preview struct {
	Node      string      `json:"node"`
	Policies  []tally.Row `json:"policies"`
	Uncounted string      `json:"uncounted,omitempty"` // what the rows lack
}

// NewStaged returns the command staged.
func NewStaged() *cobra.Command {
	var socket string
	var out show.Output
	cmd := &cobra.Command{
		Use:   "staged",
		Short: "Show what staged policies would change about the connections that this node has seen",
		Long: `staged shows each staged policy of the cluster, and the connections of this node that it would drop, or dropped packets that it would let pass, if all
staged policies were enforced. The agent of this node counts them since it knows the policy (run --flows). The third number counts those
about which another rule would decide with the same verdict. The flows themselves: contiv-agent flows --staged dropped.

Exit code 0: staged policies were shown, perhaps none. 1: no agent answers, or it does not watch flows. 2: a flag is wrong.`,
		Example: "  contiv-agent staged\n  contiv-agent staged -o json",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := fetch(cmd.Context(), flags.StatusSocket(socket), math.MaxUint64, &flows.Filter{})
			if err != nil {
				return err
			}
			p := &preview{Node: answer.Node, Policies: append([]tally.Row{}, answer.Staged...), Uncounted: answer.Uncounted}
			return out.Print(cmd.OutOrStdout(), p, p.writeRows)
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().StringVar(&socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	return cmd
}

func (p *preview) writeRows(w io.Writer) {
	tw := terminal.NewTable(w)
	for _, r := range p.Policies {
		latest := ""
		if r.Latest != "" {
			latest = "; latest: " + r.Latest
		}
		fmt.Fprintf(tw, "%s\t%s\twould drop %d connections, pass %d dropped packets; another rule: %d%s\n", r.Policy, r.Action, r.WouldDrop, r.WouldPass, r.Same, latest)
	}
	if len(p.Policies) == 0 {
		fmt.Fprintln(tw, "no staged policies")
	}
	if p.Uncounted != "" {
		fmt.Fprintf(tw, "incomplete: %s\n", p.Uncounted)
	}
	_ = tw.Flush() // an error means that standard output is closed
}
