package convert

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
)

var update = flag.Bool("update", false, "rewrite the expected texts")

// TestPolicies converts the objects in testdata/policies ("case.yaml") and compares them with "case.want".
func TestPolicies(t *testing.T) {
	files, err := filepath.Glob("testdata/policies/*.txtar")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out := &txtar.Archive{Comment: a.Comment}
		wants := map[string]string{}
		for _, f := range a.Files {
			wants[f.Name] = string(f.Data)
		}
		for _, f := range a.Files {
			name, ok := strings.CutSuffix(f.Name, ".yaml")
			if !ok {
				continue
			}
			got := policyText(t, f.Data)
			out.Files = append(out.Files, f, txtar.File{Name: name + ".want", Data: []byte(got)})
			if d := cmp.Diff(wants[name+".want"], got); d != "" && !*update {
				t.Errorf("%s: %s: (-want +got)\n%s", file, name, d)
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// tree reads YAML into the form that Decode expects.
func tree(t testing.TB, text []byte) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	out := jsonTree(data)
	if out == nil {
		t.Fatalf("no object: %s", text)
	}
	return out
}

// jsonTree parses a JSON object; nil if data is not one.
func jsonTree(data []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out map[string]any
	if dec.Decode(&out) != nil {
		return nil
	}
	return out
}

func policyText(t *testing.T, text []byte) string {
	t.Helper()
	in := tree(t, text)
	apiVersion, _ := in["apiVersion"].(string)
	kind, _ := in["kind"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := KindOf(gv.Group, kind)
	if !ok || k.Version != gv.Version {
		t.Fatalf("%s %s is not read", apiVersion, kind)
	}
	obj, unknown, err := k.Decode(in)
	var b strings.Builder
	if obj != nil {
		fmt.Fprintf(&b, "%s", obj.Ref())
		describe(t, &b, obj)
	}
	if err != nil {
		fmt.Fprintf(&b, "refused: %s\n", strings.ReplaceAll(err.Error(), "; ", ";\n  "))
	}
	for _, u := range unknown {
		fmt.Fprintf(&b, "unknown: %s\n", u)
	}
	return b.String()
}

func describe(t *testing.T, b *strings.Builder, obj model.Object) {
	order := func(o model.Order) string {
		if o == first() {
			return "first"
		}
		if !o.Set {
			return "last"
		}
		return fmt.Sprint(o.Value)
	}
	switch o := obj.(type) {
	case *model.Policy:
		fmt.Fprintf(b, ": tier %s, order %s", o.Tier, order(o.Order))
		for _, f := range []struct {
			is   bool
			name string
		}{
			{o.Ingress, "ingress"},
			{o.Egress, "egress"},
			{o.Untracked, "untracked"},
			{o.PreDNAT, "pre-DNAT"},
			{o.ApplyOnForward, "forward"},
			{o.Everywhere, "everywhere"},
		} {
			if f.is {
				fmt.Fprintf(b, ", %s", f.name)
			}
		}
		if o.Staged != "" {
			fmt.Fprintf(b, ", staged: %s", o.Staged)
		}
		fmt.Fprintf(b, "\napplies to {%s}\n", o.Selector)
		parses(t, o.Selector)
		describeRules(t, b, o.InboundRules)
		describeRules(t, b, o.OutboundRules)
	case *model.Profile:
		fmt.Fprintf(b, ": labels %v\n", o.Labels)
		describeRules(t, b, o.Rules.Inbound)
		describeRules(t, b, o.Rules.Outbound)
	case *model.Tier:
		fmt.Fprintf(b, ": order %s, ends with %s\n", order(o.Order), o.DefaultAction)
	case *model.NetworkSet:
		fmt.Fprintf(b, ": %v labels %v profiles %v\n", o.Nets, o.Labels, o.Profiles)
	case *model.HostEndpoint:
		fmt.Fprintf(b, ": %s interface %q %v labels %v profiles %v ports %v\n", o.ID, o.Interface, o.Addrs, o.Labels, o.Profiles, o.Ports)
	case *model.ServiceAccount:
		fmt.Fprintf(b, ": labels %v\n", o.Labels)
	}
}

func describeRules(t *testing.T, b *strings.Builder, rules []model.Rule) {
	for i := range rules {
		r := &rules[i]
		fmt.Fprintf(b, "%s: %s\n", r.Origin, r)
		for _, s := range []string{r.Source.Selector, r.Source.NotSelector, r.Destination.Selector, r.Destination.NotSelector} {
			parses(t, s)
		}
	}
}

func parses(t testing.TB, text string) {
	t.Helper()
	if _, err := selector.Parse(text); err != nil {
		t.Errorf("a selector that does not parse: %v", err)
	}
}
