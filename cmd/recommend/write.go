package recommend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	cmdflows "github.com/contiv-agent/contiv-agent/cmd/flows"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/flows/recommend"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// settings are the flags that the commands of a node and of a cluster share.
type settings struct {
	namespace string
	staged    bool
	out       show.Output
}

func (s *settings) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&s.namespace, "namespace", "n", "", "namespace of the workloads (required)")
	fs.BoolVar(&s.staged, "staged", false, "annotate the policies as staged: they are evaluated and not enforced")
	s.out.AddFlag(cmd)
	cmd.Flags().Lookup("output").Usage += "; text and yaml are the same"
}

func (s *settings) checkNamespace() error {
	if s.namespace == "" {
		return exit.Usage(errors.New("--namespace: is missing"))
	}
	if strings.Contains(s.namespace, "/") || strings.Contains(s.namespace, ":") {
		return exit.Usage(fmt.Errorf("--namespace %q: must be the name of a namespace", s.namespace))
	}
	return nil
}

// comparison is a cluster with which the policies are compared.
type comparison struct {
	name    string
	objects func() ([]event.Change, error)
}

// list is the policies in JSON.
type list struct {
	APIVersion string                        `json:"apiVersion"`
	Kind       string                        `json:"kind"`
	Items      []*networkingv1.NetworkPolicy `json:"items"`
}

// writePolicies writes the policies, and comments: what the flows lack, and what the policies would change in a cluster, which may be nil.
func (s *settings) writePolicies(cmd *cobra.Command, seen *cmdflows.Seen, with *comparison) error {
	r := recommend.Policies(seen.Flows, s.namespace)
	for i := range r.Policies {
		if s.staged {
			r.Policies[i].Object.Annotations = map[string]string{model.AnnotationStaged: "true"}
		}
	}
	text, err := r.YAML()
	if err != nil {
		return err
	}
	var remarks bytes.Buffer
	if len(r.Policies) == 0 {
		fmt.Fprintf(&remarks, "no allowed flow of namespace %s was seen\n", s.namespace)
	}
	for _, node := range seen.Silent {
		fmt.Fprintf(&remarks, "incomplete: %s: its agent did not answer\n", node)
	}
	for _, lack := range seen.Lacks {
		fmt.Fprintf(&remarks, "incomplete: %s\n", strings.Join(strings.Fields(lack), " "))
	}
	if with != nil {
		if err := with.writeChanges(&remarks, cmd.ErrOrStderr(), r); err != nil {
			return err
		}
	}
	if s.out == "json" {
		out := &list{"v1", "List", []*networkingv1.NetworkPolicy{}}
		for i := range r.Policies {
			out.Items = append(out.Items, r.Policies[i].Object)
		}
		for _, skipped := range r.Skipped {
			fmt.Fprintf(cmd.ErrOrStderr(), "not covered: %s\n", terminal.Plain(skipped))
		}
		writeLines(cmd.ErrOrStderr(), "", remarks.String())
		return s.out.Print(cmd.OutOrStdout(), out, nil)
	}
	var out strings.Builder
	out.WriteString(text)
	writeLines(&out, "# ", remarks.String())
	_, err = io.WriteString(cmd.OutOrStdout(), out.String())
	return err
}

// writeLines writes each line behind a prefix.
func writeLines(w io.Writer, prefix, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "%s%s\n", prefix, terminal.Plain(strings.TrimSuffix(line, "\n")))
	}
}

// writeChanges says what the policies would change in the cluster, if they were enforced. It names objects of the cluster that are refused.
func (c *comparison) writeChanges(w, complaints io.Writer, r *recommend.Result) error {
	changes, err := c.objects()
	if err != nil {
		return err
	}
	var before, after []model.Object
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintf(complaints, "refused: %s\n", terminal.Plain(ch.Err.Error()))
		}
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
			return err
		}
		after, made[o.Ref()] = append(after, o), true
	}
	for _, o := range before {
		if !made[o.Ref()] {
			after = append(after, o)
		}
	}
	fmt.Fprintf(w, "With these policies, in %s:\n", c.name)
	show.Changed(w, change.Compare(before, after))
	return nil
}
