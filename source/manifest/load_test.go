package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// say formats the result of parsing: one line per change, objects with their origin.
func say(p *parsed) []string {
	var out []string
	for _, c := range merge([]*parsed{p}) {
		if c.Err != nil {
			out = append(out, "! "+c.Err.Error())
		} else {
			out = append(out, "+ "+c.Ref.String()+" @"+c.Origin)
		}
	}
	return out
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"nothing", "f.yaml", "", ""},
		{"comments only", "f.yaml", "# a\n---\n# b\n---\n", ""},
		{
			"separators with remarks, CRLF, BOM", "f.yaml", "\xef\xbb\xbf--- # first\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: a\r\n---   \r\n" +
				"apiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: b\r\n...\r\n",
			"+ Namespace a @f.yaml:2|+ Namespace b @f.yaml:7",
		},
		{"a directive", "f.yaml", "%YAML 1.1\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n", "+ Namespace a @f.yaml:3"},
		{"text after the separator", "f.yaml", "--- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n", "+ Namespace a @f.yaml:1"},
		{
			"a line of dashes inside a string", "f.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      kind: [\n",
			"+ Namespace a @f.yaml:1",
		},
		{
			"documents after the end marker", "f.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n...\n{apiVersion: v1, kind: Namespace, metadata: {name: b}}\n",
			"+ Namespace a @f.yaml:1|+ Namespace b @f.yaml:3",
		},
		{
			"a List", "f.yaml", "# list\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: B}\n",
			"+ Namespace a @f.yaml:5|! f.yaml:10: Namespace B: metadata.name: must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends (\"B\")",
		},
		{
			"a typed list whose items say nothing", "f.yaml", "apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
			"+ Namespace a @f.yaml:4|+ Namespace b @f.yaml:5",
		},
		{
			"a List in a List", "f.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n",
			"+ Namespace a @f.yaml:7",
		},
		{"an empty List", "f.yaml", "apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: List\n", ""},
		{
			"a List of nonsense", "f.yaml", "apiVersion: v1\nkind: List\nitems:\n- 7\n- null\n- {apiVersion: v1}\n",
			"! f.yaml:4: not a Kubernetes object: it must be a mapping with apiVersion and kind|! f.yaml:6: not a Kubernetes object: kind is missing or not a string",
		},
		{"items that are no list", "f.yaml", "apiVersion: v1\nkind: List\nitems:\n  a: b\n", "! f.yaml:3: items must be a list"},
		{"other kinds", "f.yaml", "{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: serving.example/v1, kind: Service}\n---\n{apiVersion: v1, kind: Endpoints}\n---\n{apiVersion: apps/v1, kind: DeploymentList, items: 7}\n", ""},
		{"a version the agent does not read", "f.yaml", "kind: Service\napiVersion: v2\nmetadata: {name: a}\n", "! f.yaml:2: Service default/a: apiVersion: must be v1 (\"v2\")"},
		{"a version that is none", "f.yaml", "kind: Service\napiVersion: a/b/c\n", "! f.yaml:2: not a Kubernetes object: apiVersion must be group/version"},
		{"no name", "f.yaml", "kind: Service\napiVersion: v1\nspec: {ports: [{port: 1}]}\n", "! f.yaml:1: Service default/(no name): metadata.name: is missing"},
		{
			"two without names", "f.yaml", "{kind: Namespace, apiVersion: v1}\n---\n{kind: Namespace, apiVersion: v1}\n",
			"! f.yaml:1: Namespace (no name): metadata.name: is missing|! f.yaml:3: Namespace (no name): metadata.name: is missing",
		},
		{"a key twice", "f.yaml", "kind: Service\napiVersion: v1\nkind: Pod\n", "! f.yaml:3: not valid YAML: key \"kind\" already set in map; the document that begins on line 1 is not used"},
		{"tabs", "f.yaml", "kind: Service\n\tapiVersion: v1\n", "! f.yaml:2: not valid YAML: found a tab character that violates indentation; the document that begins on line 1 is not used"},
		{"an unknown anchor", "f.yaml", "kind: *x\n", "! f.yaml:1: not valid YAML: unknown anchor 'x' referenced; the document that begins on line 1 is not used"},
		{"anchors", "f.yaml", "apiVersion: v1\nkind: Pod\nmetadata: &m {name: a, labels: &l {x: y-z}}\nspec: {nodeSelector: *l}\n", "+ Pod default/a @f.yaml:1"},
		{"a scalar", "f.yaml", "hello\n", "! f.yaml:1: not a Kubernetes object: it must be a mapping with apiVersion and kind"},
		{
			"null fields", "f.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a, creationTimestamp: null, labels: null}\nspec: {type: null, ports: [{port: 80}]}\nstatus: {loadBalancer: {}}\n",
			"+ Service default/a @f.yaml:1",
		},
		{
			"JSON with tabs", "f.json", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Service\",\n\t\"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\n\t\t\"ports\": [\n\t\t\t{\"port\": \"x\"}]}}",
			"! f.json:7: Service default/a: spec.ports[0].port: must be a whole number (\"x\")",
		},
		{
			"JSON values one after the other", "f.json", "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}\n{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"b\"}}\n",
			"+ Namespace a @f.json:1|+ Namespace b @f.json:2",
		},
		{"JSON in a YAML file", "f.yaml", "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}", "+ Namespace a @f.yaml:1"},
		{"JSON cut short", "f.json", "{\"apiVersion\":\"v1\",\n\"kind\":", "! f.json:2: not valid JSON: unexpected EOF; the document that begins on line 1 is not used"},
		{
			"several wrong types", "f.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  labels: [x]\nspec:\n  publishNotReadyAddresses: \"yes\"\n  selector: {a: 1}\n  ports:\n  - port: 80.5\n    targetPort: true\n  - 7\n",
			"! f.yaml:5: Service default/a: metadata.labels: must be a mapping (a list); line 10: spec.ports[0].port: must be a whole number of at most 32 bits (80.5); " +
				"line 11: spec.ports[0].targetPort: must be a whole number or a string (true); line 12: spec.ports[1]: must be a mapping (7); " +
				"line 7: spec.publishNotReadyAddresses: must be true or false (\"yes\"); line 8: spec.selector[a]: must be a string, so it needs quotes (1)",
		},
		{
			"a number too large", "f.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 99999999999}]}\n",
			"! f.yaml:4: Service default/a: spec.ports[0].port: must be a whole number of at most 32 bits (99999999999)",
		},
		{
			"a quantity, a time", "f.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: now}\nspec: {containers: [{resources: {limits: {cpu: lots}}}]}\n",
			"! f.yaml:3: Pod default/a: metadata.creationTimestamp: must be a time such as 2026-01-31T12:00:00Z (\"now\"); " +
				"line 4: spec.containers[0].resources.limits[cpu]: must be a quantity such as 100m or 1Gi (\"lots\")",
		},
		{
			"an object twice", "f.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n",
			"+ Namespace a @f.yaml:1|! f.yaml:3: Namespace a: is defined at f.yaml:1 already; this definition is ignored",
		},
		{"host names", "f.yaml", "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}, addressType: FQDN}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, strings.Join(say(parse(c.file, []byte(c.text), false)), "|")); d != "" {
				t.Errorf("(- want, + got)\n%s", d)
			}
		})
	}
}

func TestParseCountsAndWarns(t *testing.T) {
	p := parse("f.yaml", []byte("{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: apps/v1, kind: Deployment}\n---\n"+
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports:\n  - port: 80\n    protcol: UDP\n"), false)
	if d := cmp.Diff(map[string]int{"apps/v1 Deployment": 2}, p.ignored); d != "" {
		t.Error(d)
	}
	want := []string{"f.yaml:11: Service default/a: spec.ports[0].protcol: is not a field of this kind; ignored"}
	if d := cmp.Diff(want, p.warnings); d != "" {
		t.Error(d)
	}
	if len(p.entries) != 1 || p.entries[0].object == nil {
		t.Errorf("entries %+v", p.entries)
	}
}

func TestSteps(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "a": "a", "a.b": "a,b", "a[3].b": "a,3,b", "metadata.labels[x.y/z].q": "metadata,labels,x.y/z,q", "a[1][2]": "a,1,2", "a[": "a,",
	} {
		if got := strings.Join(steps(path), ","); got != want {
			t.Errorf("steps(%q) = %s, want %s", path, got, want)
		}
	}
}

func TestLoadPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"f/b.yml", "f/a.yaml", "f/sub/c.json", "f/.hidden.yaml", "f/.git/x.yaml", "f/notes.md", "f/sub/d.yaml~", "other/z.yaml", "single.txt"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		object := strings.ToLower(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return r
			}
			return '-'
		}, strings.Trim(name, ".~")))
		if err := os.WriteFile(name, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, object), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		paths []string
		want  string
		err   string
	}{
		{[]string{"f"}, "f/a.yaml:1 f/b.yml:1 f/sub/c.json:1", ""},
		{[]string{"f/", "./f", "f/a.yaml"}, "f/a.yaml:1 f/b.yml:1 f/sub/c.json:1", ""},
		{[]string{"single.txt", "other"}, "other/z.yaml:1 single.txt:1", ""},
		{[]string{"other", "missing"}, "other/z.yaml:1", "missing"},
		{[]string{filepath.Join(dir, "other")}, filepath.Join(dir, "other/z.yaml:1"), ""},
	} {
		changes, err := Load(c.paths...)
		var got []string
		for _, ch := range changes {
			if ch.Err != nil {
				t.Errorf("%v: %v", c.paths, ch.Err)
			}
			got = append(got, ch.Origin)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: loaded %v, want %s", c.paths, got, c.want)
		}
		if (err != nil) != (c.err != "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: error %v, want %q", c.paths, err, c.err)
		}
	}
}

// The order of paths and of file creation does not matter.
func TestLoadIsOrderFree(t *testing.T) {
	a, err := Load("../../examples/guestbook", "../../examples/broken")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load("../../examples/broken", "../../examples/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	show := func(list []event.Change) (out []string) {
		for _, c := range list {
			out = append(out, fmt.Sprint(c.Ref, c.Origin, c.Err))
		}
		return out
	}
	if d := cmp.Diff(show(a), show(b)); d != "" {
		t.Error(d)
	}
}

func TestErrorCarriesConversion(t *testing.T) {
	p := parse("f.yaml", []byte("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"), false)
	e, ok := p.entries[0].err.(*Error)
	if !ok || e.File != "f.yaml" || e.Line != 1 {
		t.Fatalf("error %#v", p.entries[0].err)
	}
	if c, ok := e.Err.(*check.Error); !ok || c.Problems[0].Field != "spec.ports" {
		t.Errorf("it carries %#v", e.Err)
	}
}
