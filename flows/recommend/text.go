package recommend

import (
	"bytes"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// YAML returns the policies as one file. Comments say which flows are behind each rule.
func (r *Result) YAML() (string, error) {
	var out bytes.Buffer
	for i := range r.Policies {
		p := &r.Policies[i]
		o := p.Object.DeepCopy()
		ingress, egress := o.Spec.Ingress, o.Spec.Egress
		o.Spec.Ingress, o.Spec.Egress = nil, nil
		text, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "---\n# Flows of %s\n", commentText(seen(p.Pods)))
		if len(o.Spec.PodSelector.MatchLabels) == 0 {
			out.WriteString("# Its pods have no label in common: the policy applies to all pods of the namespace.\n")
		}
		out.Write(withoutEmpty(text))
		if err := writeRules(&out, "ingress", ingress, p.Ingress); err != nil {
			return "", err
		}
		if err := writeRules(&out, "egress", egress, p.Egress); err != nil {
			return "", err
		}
	}
	for _, text := range r.Skipped {
		fmt.Fprintf(&out, "# not covered: %s\n", commentText(text))
	}
	return out.String(), nil
}

// seen names a few pods.
func seen(pods []string) string {
	const most = 3
	if len(pods) <= most {
		return strings.Join(pods, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(pods[:most], ", "), len(pods)-most)
}

// commentText is text that cannot end a comment.
func commentText(text string) string { return strings.Join(strings.Fields(text), " ") }

// withoutEmpty drops the fields that the types of Kubernetes write although they are empty.
func withoutEmpty(text []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("  creationTimestamp: null\n"), nil), []byte("status: {}\n"), nil)
}

// writeRules writes the rules of one direction into the spec, which ends the text so far.
func writeRules[T any](out *bytes.Buffer, name string, rules []T, backings []Backing) error {
	if len(rules) > 0 {
		fmt.Fprintf(out, "  %s:\n", name)
	}
	for i := range rules {
		b := &backings[i]
		fmt.Fprintf(out, "  # %d flows, %d connections: %s\n", b.Flows, b.Connections, commentText(b.Example))
		text, err := yaml.Marshal(rules[i : i+1])
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			out.WriteString("  " + line)
		}
	}
	return nil
}
