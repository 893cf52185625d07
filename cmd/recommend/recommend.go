// Package recommend turns the flags of contiv-agent policy recommend, and flows, into NetworkPolicies on standard output.
//
// Invariant: the output is YAML that kubectl applies; all else in it is comments.
package recommend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/flows/recommend"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// command is the flags.
type command struct {
	namespace string
	socket    string
	files     []string
	manifests []string
	staged    bool
}

// New returns the command recommend, below policy.
func New() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "recommend",
		Short: "Make NetworkPolicies from the connections of a namespace that were seen",
		Long: `recommend makes one NetworkPolicy for each workload of a namespace. It allows the connections that were seen, in the directions in which some were
seen, and nothing else. Comments say how many flows and connections are behind each rule. The output is YAML for kubectl apply.

The flows are those that the agent of this node has seen (run --flows), or those of files with the output of "flows -o json": of several nodes, or of
"kubectl contiv flows -o json". Connections that nobody opened while agents watched are not allowed: look at the policies first, or stage them.

With --manifests, comments at the end say which connections the policies would close, for all packets, as verify --diff does.

Exit code 0: policies were written, perhaps none. 1: no agent answers, or it does not watch flows. 2: a flag or a file is wrong.`,
		Example: `  contiv-agent policy recommend -n prod
  kubectl contiv flows -o json | contiv-agent policy recommend -n prod --flows - --staged`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.namespace == "" {
				return exit.Usage(errors.New("--namespace: is missing"))
			}
			list, err := c.readFlows(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return err
			}
			return c.writePolicies(cmd.OutOrStdout(), list)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the workloads (required)")
	fs.StringSliceVar(&c.files, "flows", nil, "read flows from these files in place of the agent; -: standard input")
	fs.StringSliceVar(&c.manifests, "manifests", nil, "compare with the cluster of these folders or files: which connections would the policies close?")
	fs.BoolVar(&c.staged, "staged", false, "annotate the policies as staged: they are evaluated and not enforced")
	fs.StringVar(&c.socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	return cmd
}

// readFlows returns the flows of the agent, or of the files.
func (c *command) readFlows(ctx context.Context, stdin io.Reader) ([]flows.Flow, error) {
	if len(c.files) == 0 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answer, err := control.FetchFlows(ctx, flags.StatusSocket(c.socket), 0, &flows.Filter{Verdict: flows.Allowed})
		if err != nil {
			return nil, err
		}
		return answer.Flows, nil
	}
	var out []flows.Flow
	for _, name := range c.files {
		text, err := contentOf(name, stdin)
		var list []flows.Flow
		if err == nil {
			list, err = parseFlows(text)
		}
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("--flows %s: %w", name, err))
		}
		out = append(out, list...)
	}
	return out, nil
}

func contentOf(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// parseFlows reads the answer of an agent, or a list of the answers of a cluster.
func parseFlows(text []byte) ([]flows.Flow, error) {
	var one struct {
		Kind  string `json:"kind"`
		Items []struct {
			Answer *agentflows.Answer `json:"answer"`
		} `json:"items"`
		agentflows.Answer
	}
	if err := json.Unmarshal(text, &one); err != nil {
		return nil, err
	}
	if one.Kind != "List" && one.Flows == nil {
		return nil, errors.New("is not the output of flows -o json")
	}
	out := one.Flows
	for _, item := range one.Items {
		if item.Answer != nil {
			out = append(out, item.Answer.Flows...)
		}
	}
	return out, nil
}

func (c *command) writePolicies(w io.Writer, list []flows.Flow) error {
	r := recommend.Policies(list, c.namespace)
	for i := range r.Policies {
		if c.staged {
			r.Policies[i].Object.Annotations = map[string]string{model.AnnotationStaged: "true"}
		}
	}
	text, err := r.YAML()
	if err != nil {
		return err
	}
	if len(r.Policies) == 0 {
		text += fmt.Sprintf("# no allowed flow of namespace %s was seen\n", c.namespace)
	}
	if len(c.manifests) > 0 {
		compared, err := c.compareClusters(r)
		if err != nil {
			return exit.Usage(err)
		}
		text += compared
	}
	_, err = io.WriteString(w, text)
	return err
}

// compareClusters says as comments what the policies would change in the cluster of the manifests, if they were enforced.
func (c *command) compareClusters(r *recommend.Result) (string, error) {
	var before, after []model.Object
	changes, err := manifest.Load(c.manifests...)
	if err != nil {
		return "", err
	}
	for _, ch := range changes {
		if ch.Object != nil {
			before = append(before, ch.Object)
		}
	}
	made := map[model.Ref]bool{}
	for i := range r.Policies {
		enforced := r.Policies[i].Object.DeepCopy()
		enforced.Annotations = nil
		o, err := convert.Object(enforced)
		if err != nil {
			return "", err
		}
		after, made[o.Ref()] = append(after, o), true
	}
	for _, o := range before {
		if !made[o.Ref()] {
			after = append(after, o)
		}
	}
	var text bytes.Buffer
	show.Changed(&text, change.Compare(before, after))
	var out strings.Builder
	out.WriteString("# With these policies, in the cluster of the manifests:\n")
	for line := range strings.Lines(text.String()) {
		out.WriteString("# " + line)
	}
	return out.String(), nil
}
