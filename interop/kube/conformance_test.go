package kube

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

var writeReport = flag.Bool("report", false, "TestConformance writes what the suite reports to docs/conformance")

// recordedReport is what the suite said when this was last written.
const recordedReport = "../../docs/conformance/clusternetworkpolicy-v0.2.0.yaml"

// features are all that the suite knows of.
const features = "ClusterNetworkPolicy,ClusterNetworkPolicyNamedPorts,ClusterNetworkPolicyEgressNodePeers"

// TestConformance runs the conformance suite of network-policy-api, a program built from that module only. The suite uses an
// API server, to which it sends policies, and Pods, in which it runs agnhost through the API server. agnhost's output is the
// fate of packets in the nodes' VPPs.
func TestConformance(t *testing.T) {
	repeat(t)
	s := newSuite(t)
	t.Run("cnat", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "report.yaml")
		said := conform(t, s, "cnat", "-report-output", out)
		for _, f := range missed(said) {
			t.Errorf("%s: %s: it should pass: %v\n%s", f.test, f.protocol, f.passes, f.text)
		}
		asRecorded(t, out)
	})
	// nat44 gives SCTP to other nodes the address of the node, and policies a client they do not know.
	t.Run("nat44, without SCTP", func(t *testing.T) {
		said := conform(t, s, "nat44", "-test.skip", "^TestConformanceProfiles$/(SCTP$|Gress$|^CNPBaselineTierEgressInlineCIDRPeers$)")
		for _, f := range missed(said) {
			t.Errorf("%s: %s: it should pass: %v\n%s", f.test, f.protocol, f.passes, f.text)
		}
		if n := strings.Count(said, "\n    --- PASS: TestConformanceProfiles/"); n < 17 {
			t.Errorf("%d tests pass, want 17", n)
		}
	})
}

// conform runs the suite with agents that serve Services so, and returns what it says.
func conform(t *testing.T, s suite, renderer string, flags ...string) string {
	t.Helper()
	c := newCluster(t)
	for _, file := range []string{"../../deploy/reader/role.yaml", "testdata/reader.yaml", s.definitions} {
		c.kubectl(nil, "apply", "--server-side", "-f", file)
	}
	f := &fabric{kubelet: newFakeKubelet(t, c)}
	f.kubelet.exec(t, f.agnhost)
	c.control()
	for _, name := range nodes {
		f.nodes = append(f.nodes, newNode(t, c, name, "--service-renderer", renderer))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("not connected when last tried:\n%s", f.unanswered())
		}
	})
	said := s.run(t, c, flags...)
	t.Logf("%d tests of the suite pass", strings.Count(said, "\n    --- PASS: TestConformanceProfiles/"))
	return said
}

// run runs the suite on a cluster, and returns what it says.
func (s suite) run(t *testing.T, c *cluster, flags ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.program, append([]string{
		"-test.v", "-test.run", "^TestConformanceProfiles$", "-conformance-profiles", "ClusterNetworkPolicy", "-supported-features", features,
		"-organization", "contiv-agent", "-project", "contiv-agent", "-url", "https://github.com/contiv-agent/contiv-agent", "-version", "main",
		"-contact", "https://github.com/contiv-agent/contiv-agent/issues", "-additional-info", "make e2e: TestConformance of interop/kube",
	}, flags...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.path("admin.kubeconfig"))
	out, err := cmd.CombinedOutput()
	said := string(out)
	if !strings.Contains(said, "Conformance report:") {
		t.Fatalf("the suite does not come to its end: %v\n%s", err, said)
	}
	if strings.Contains(said, "--- SKIP") {
		t.Errorf("the suite leaves out tests:\n%s", said)
	}
	return said
}

// miss is something the suite did not see in time.
type miss struct {
	test     string // its name below TestConformanceProfiles
	protocol string // that was asked for
	passes   bool   // the connection should be made
	text     string // the suite's own words
}

var (
	running  = regexp.MustCompile(`^\s*=== (?:RUN|CONT|NAME)\s+TestConformanceProfiles/(\S+)`)
	command  = regexp.MustCompile(`FAILED Command was .* --protocol=(\S+) `)
	expected = regexp.MustCompile(`Expected connection to (succeed|fail|be dropped) .*`)
	failed   = regexp.MustCompile(`Condition never satisfied|Error:\s|FAILED to execute|--- FAIL: TestConformanceProfiles/(\S+)`)
)

// missed reads the suite's output: it reports every attempt, and then that it has given up. A test that fails without these
// messages gets an entry with all other fields empty.
func missed(said string) (out []miss) {
	var last miss
	reported := map[string]bool{} // tests, and those they are part of
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\n")
		switch m := failed.FindStringSubmatch(line); {
		case m != nil && m[1] != "" && !reported[m[1]]:
			out = append(out, miss{test: m[1], text: line})
		case m != nil && m[1] == "" && !strings.Contains(line, "FAILED to execute"):
			out = append(out, last)
			for test := last.test; test != "."; test = filepath.Dir(test) {
				reported[test] = true
			}
		}
		if m := running.FindStringSubmatch(line); m != nil {
			last = miss{test: m[1]}
		}
		if m := command.FindStringSubmatch(line); m != nil {
			last.protocol = m[1]
		}
		if m := expected.FindStringSubmatch(line); m != nil {
			last.passes, last.text = m[1] == "succeed", m[0]
		}
	}
	return out
}

// TestMissed: what is read of what the suite says.
func TestMissed(t *testing.T) {
	const said = `=== RUN   TestConformanceProfiles
=== RUN   TestConformanceProfiles/A
=== RUN   TestConformanceProfiles/A/one
    helper.go:71: FAILED Command was [/agnhost connect --timeout=3s --protocol=tcp 10.0.0.1:80]
    helper.go:71: Expected connection to fail from a/b to 10.0.0.1, but instead it successfully connected.
=== RUN   TestConformanceProfiles/A/two
    helper.go:71: FAILED Command was [/agnhost connect --timeout=3s --protocol=sctp 10.0.0.1:90]
    helper.go:71: Expected connection to succeed from a/b to 10.0.0.1, but instead it miserably failed. stderr: TIMEOUT
    helper.go:70: 
        	Error Trace:	helper.go:70
        	Error:      	Condition never satisfied
        	Test:       	TestConformanceProfiles/A/two
=== RUN   TestConformanceProfiles/B
--- FAIL: TestConformanceProfiles (1.0s)
    --- FAIL: TestConformanceProfiles/A (1.0s)
        --- PASS: TestConformanceProfiles/A/one (0.0s)
        --- FAIL: TestConformanceProfiles/A/two (0.0s)
    --- FAIL: TestConformanceProfiles/B (1.0s)
`
	var got []string
	for _, m := range missed(said) {
		got = append(got, fmt.Sprintf("%s %q %v", m.test, m.protocol, m.passes))
	}
	if diff := cmp.Diff([]string{`A/two "sctp" true`, `B "" false`}, got); diff != "" {
		t.Error(diff)
	}
}

// asRecorded holds a report against the one that is recorded, but for the date; -report records it.
func asRecorded(t *testing.T, file string) {
	t.Helper()
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if *writeReport {
		if err := os.WriteFile(recordedReport, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(recordedReport)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := errors.Join(yaml.Unmarshal(recorded, &want), yaml.Unmarshal(now, &got)); err != nil {
		t.Fatal(err)
	}
	undated := cmpopts.IgnoreMapEntries(func(key string, _ any) bool { return key == "date" })
	anyOrder := cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) }) // the suite's comes out of maps
	if diff := cmp.Diff(want, got, undated, anyOrder); diff != "" {
		t.Errorf("%s is not what the suite reports (-file +report; -report writes it):\n%s", recordedReport, diff)
	}
}
