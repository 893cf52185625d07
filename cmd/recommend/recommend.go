// Package recommend turns the flags of contiv-agent policy recommend, and flows, into NetworkPolicies on standard output.
//
// Invariant: the output is YAML that kubectl applies, all else in it is comments; or JSON, and the comments are on standard error.
package recommend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	cmdflows "github.com/contiv-agent/contiv-agent/cmd/flows"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// about says what the command makes.
const about = `recommend makes one NetworkPolicy for each workload of a namespace. It allows the connections that were seen, in the directions in which some were
seen, and nothing else. Comments say how many flows and connections are behind each rule. The output is YAML for kubectl apply; with -o json it is a
List, and the comments are on standard error.`

// filters select the flows of which policies are made. An agent shows a bounded number of flows: those of other namespaces take no room.
func (s *settings) filters() []*flows.Filter {
	return []*flows.Filter{{Verdict: flows.Allowed, From: s.namespace}, {Verdict: flows.Allowed, To: s.namespace}}
}

// command is the flags.
type command struct {
	settings
	socket    string
	files     []string
	manifests []string
}

// New returns the command recommend, below policy.
func New() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "recommend",
		Short: "Make NetworkPolicies from the connections of a namespace that were seen",
		Long: about + `

The flows are those that the agent of this node has seen (run --flows), or those of files with the output of "flows -o json": of several nodes, or of
"kubectl contiv flows -o json". Connections that nobody opened while agents watched are not allowed: look at the policies first, or stage them.

With --manifests, comments at the end say which connections the policies would close, for all packets, as verify --diff does.

Exit code 0: policies were written, perhaps none. 1: no agent answers, or it does not watch flows. 2: a flag or a file is wrong.`,
		Example: `  contiv-agent policy recommend -n prod
  kubectl contiv flows -o json | contiv-agent policy recommend -n prod --flows - --staged`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.checkNamespace(); err != nil {
				return err
			}
			seen, err := c.readFlows(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return err
			}
			return c.writePolicies(cmd, seen, c.compared(cmd.Context()))
		},
	}
	c.addFlags(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&c.files, "flows", nil, "read flows from these files in place of the agent; -: standard input")
	fs.StringSliceVar(&c.manifests, "manifests", nil, "compare with the cluster of these folders or files: which connections would the policies close?")
	fs.StringVar(&c.socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	return cmd
}

// compared returns the cluster of the manifests; nil: none are given.
func (c *command) compared(ctx context.Context) *comparison {
	if len(c.manifests) == 0 {
		return nil
	}
	return &comparison{"the cluster of the manifests", func() ([]event.Change, error) {
		changes, err := manifest.LoadUntil(ctx, c.manifests...)
		return changes, exit.Usage(err)
	}}
}

// readFlows returns the flows of the agent, or of the files.
func (c *command) readFlows(ctx context.Context, stdin io.Reader) (*cmdflows.Seen, error) {
	if len(c.files) == 0 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		out := &cmdflows.Seen{}
		for i, filter := range c.filters() {
			answer, err := control.FetchFlows(ctx, flags.StatusSocket(c.socket), 0, filter)
			if err != nil {
				return nil, err
			}
			out.Add(&cmdflows.Seen{Flows: answer.Flows, Lacks: cmdflows.Lacks(answer)}, c.filters()[:i])
		}
		return out, nil
	}
	out := &cmdflows.Seen{}
	for _, name := range c.files {
		text, err := contentOf(name, stdin)
		if err == nil {
			err = addFlows(out, text)
		}
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("--flows %s: %w", name, err))
		}
	}
	return out, nil
}

func contentOf(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// addFlows adds the flows in the answer of an agent, or in a list of the answers of a cluster.
func addFlows(to *cmdflows.Seen, text []byte) error {
	var one struct {
		Kind  string `json:"kind"`
		Items []struct {
			Node   string             `json:"node"`
			Answer *agentflows.Answer `json:"answer"`
		} `json:"items"`
		agentflows.Answer
	}
	if err := json.Unmarshal(text, &one); err != nil {
		return err
	}
	if one.Kind != "List" && one.Flows == nil {
		return errors.New("is not the output of flows -o json")
	}
	to.Flows, to.Lacks = append(to.Flows, one.Flows...), append(to.Lacks, cmdflows.Lacks(&one.Answer)...)
	for _, item := range one.Items {
		if item.Answer == nil {
			to.Silent = append(to.Silent, item.Node)
			continue
		}
		to.Flows = append(to.Flows, item.Answer.Flows...)
		for _, lack := range cmdflows.Lacks(item.Answer) {
			to.Lacks = append(to.Lacks, item.Node+": "+lack)
		}
	}
	return nil
}
