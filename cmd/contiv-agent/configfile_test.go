package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/configfile"
)

// kinds are the commands that have configuration files.
var kinds = map[string]func() *cobra.Command{configfile.AgentKind: newRun, configfile.FanoutKind: newFanout}

// TestEveryFlagIsAField loads the files of the page: they have every flag of the command with its default, and no other
// field.
func TestEveryFlagIsAField(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != configfile.Page(newRun(), newFanout()) {
		t.Error("docs/configuration.md differs from the flags: run make man")
	}
	for kind, blank := range kinds {
		_, rest, found := strings.Cut(string(page), "apiVersion: "+configfile.Version+"\nkind: "+kind+"\n")
		text, _, end := strings.Cut(rest, "```")
		if !found || !end {
			t.Fatalf("%s is not on the page", kind)
		}
		into := blank().Flags()
		f := &configfile.File{Path: "sample", Kind: kind, Blank: blank}
		if err := f.Read([]byte("apiVersion: "+configfile.Version+"\nkind: "+kind+"\n"+text), into); err != nil {
			t.Errorf("%s of the page: %v", kind, err)
		}
		known := 0
		into.VisitAll(func(flag *pflag.Flag) {
			if flag.Name == "config" || flag.Name == "validate-config" || flag.Name == "help" {
				return
			}
			if known++; !flag.Changed {
				t.Errorf("%s: no field for --%s", kind, flag.Name)
			} else if flag.Value.String() != flag.DefValue {
				t.Errorf("%s: %s is %s when it is left out, the page says %s", kind, configfile.FieldName(flag.Name), flag.DefValue, flag.Value)
			}
		})
		if fields := f.Fields(into); len(fields) != known || known < 40 {
			t.Errorf("%s: %d fields for %d flags", kind, len(fields), known)
		}
	}
}

// TestFileValuesEqualFlagValues: a field sets the same value as the same text on the command line.
func TestFileValuesEqualFlagValues(t *testing.T) {
	file := `
apiVersion: agent.contiv.io/v1alpha1
kind: AgentConfiguration
inCluster: true
serviceCIDR: [10.96.0.0/16, "fd00:96::/108"]
ignorePolicyKinds: []
recheck: 5m
natSessions: 0x10
localEndpointWeight: 3
apiServer: "https://192.0.2.1:6443"
noSNAT: &yes true
maglev: *yes
`
	want := newRun().Flags()
	if err := want.Parse([]string{
		"--in-cluster", "--service-cidr=10.96.0.0/16,fd00:96::/108", "--ignore-policy-kinds=", "--recheck=5m", "--nat-sessions=16",
		"--local-endpoint-weight=3", "--api-server=https://192.0.2.1:6443", "--no-snat", "--maglev",
	}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newRun()
	got := cmd.Flags()
	f := &configfile.File{Path: path, Kind: configfile.AgentKind, Blank: newRun}
	if err := f.Apply(got); err != nil {
		t.Fatal(err)
	}
	want.VisitAll(func(flag *pflag.Flag) {
		if have := got.Lookup(flag.Name); have.Value.String() != flag.Value.String() || have.Changed != flag.Changed {
			t.Errorf("--%s is %q (given: %t), want %q (%t)", flag.Name, have.Value, have.Changed, flag.Value, flag.Changed)
		}
	})
	if typed := newRun().Flags(); typed.Parse([]string{"--recheck=1s", "--service-cidr=10.0.0.0/8"}) != nil || f.Apply(typed) != nil ||
		typed.Lookup("recheck").Value.String() != "1s" || typed.Lookup("service-cidr").Value.String() != "[10.0.0.0/8]" {
		t.Errorf("the command line does not win: %v %v", typed.Lookup("recheck").Value, typed.Lookup("service-cidr").Value)
	}
}

// TestFileIsReadStrictly: the error lists all problems in the order of lines, each with its place.
func TestFileIsReadStrictly(t *testing.T) {
	const head = "apiVersion: agent.contiv.io/v1alpha1\nkind: AgentConfiguration\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "F:1: is empty"},
		{"only a comment", "# nothing\n", "F:1: is empty"},
		{"no fields", "- a\n", "F:1: must have fields"},
		{"no head", "node: a\n", "F:1: apiVersion: must be agent.contiv.io/v1alpha1\nF:1: kind: must be AgentConfiguration"},
		{"another head", "apiVersion: agent.contiv.io/v1\nkind: FanoutConfiguration\n", "F:1: apiVersion: must be agent.contiv.io/v1alpha1\nF:2: kind: must be AgentConfiguration"},
		{"two documents", head + "---\n" + head, "F:3: must be one document"},
		{"no YAML", head + "node: [\n", "F:3: did not find expected node content"},
		{"unknown", head + "nodename: a\nservice-cidr: []\nconfig: x\n", "F:3: nodename: no such field\nF:4: service-cidr: no such field; did you mean serviceCIDR?\nF:5: config: no such field"},
		{"twice", head + "node: a\nsim: true\nnode: b\nnode: c\n", "F:5: node: is a duplicate of line 3\nF:6: node: is a duplicate of line 3"},
		{"nothing", head + "node:\nmanifests:\nsim: ~\n", "F:3: node: must be a string; quote it\nF:4: manifests: must be a list of strings\nF:5: sim: must be true or false"},
		{
			"types", head + "node: 7\nsim: \"true\"\nrecheck: 5\nvxlanPort: \"4789\"\nmanifests: a\nserviceCIDR: [10.0.0.0/8, 1]\nmaglev: {a: b}\nonce: yes\n",
			"F:3: node: must be a string; quote it\nF:4: sim: must be true or false\nF:5: recheck: must be a duration such as 30s, a string\n" +
				"F:6: vxlanPort: must be a whole number\nF:7: manifests: must be a list of strings\nF:8: serviceCIDR: must be a list of strings; quote them\n" +
				"F:9: maglev: must be true or false\nF:10: once: must be true or false",
		},
		{
			"values", head + "recheck: soon\nvxlanPort: 70000\nlocalEndpointWeight: -1\n",
			"F:3: recheck: time: invalid duration \"soon\"\nF:4: vxlanPort: strconv.ParseUint: parsing \"70000\": value out of range\n" +
				"F:5: localEndpointWeight: strconv.ParseUint: parsing \"-1\": invalid syntax",
		},
	} {
		f := &configfile.File{Path: "F", Kind: configfile.AgentKind, Blank: newRun}
		err := f.Read([]byte(c.text), newRun().Flags())
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
}

// FuzzConfigFile: a file is applied, or refused with an error that names it.
func FuzzConfigFile(f *testing.F) {
	f.Add(configfile.Sample(configfile.AgentKind, newRun().Flags()))
	f.Add("apiVersion: agent.contiv.io/v1alpha1\nkind: AgentConfiguration\nnode: &a b\nuplink: *a\n")
	f.Add("a: &a [*a]\n<<: *a\n? {x: y}\n: z\n")
	f.Fuzz(func(t *testing.T, text string) {
		for kind, blank := range kinds {
			file := &configfile.File{Path: "F", Kind: kind, Blank: blank, Bare: kind == configfile.FanoutKind}
			if err := file.Read([]byte(text), blank().Flags()); err != nil && !strings.HasPrefix(err.Error(), "F:") {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
