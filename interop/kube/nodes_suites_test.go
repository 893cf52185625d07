//go:build nodes

package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Names under which Kubernetes' tests look for agnhost and pause.
var (
	agnhostNames = regexp.MustCompile(`(?m)^registry\.k8s\.io/e2e-test-images/agnhost:\S+$`)
	pauseName    = regexp.MustCompile(`(?m)^registry\.k8s\.io/pause:\S+$`)
)

// policyImage is that of network-policy-api's conformance/base/manifests.yaml.
const policyImage = "registry.k8s.io/e2e-test-images/agnhost:2.45"

// shellPrograms are programs of this machine that the tests start in their pods. Some tests name them in /bin.
var shellPrograms = strings.Fields("sh bash cat curl cut date dd echo env false grep head hostname ip ls mkdir printf rm seq sleep sort ss tail test touch tr true wc wget")

// suiteImages are the images that the suites ask for, made of programs of this machine, and the cluster's DNS.
func suiteImages(t *testing.T) []imageOf {
	t.Helper()
	newSuite(t)
	names, err := exec.Command(filepath.Join(buildSuite(t), "e2e.test"), "--list-images").Output()
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(built.scratch, "agnhost-helper")
	if err := goBuild(t.Context(), os.Stdout, "agnhost", helper, ".", "-ldflags=-s -w"); err != nil {
		t.Fatal(err)
	}
	agnhost := imageOf{files: map[string]string{}, env: []string{"PATH=/usr/local/bin:/bin"}, entrypoint: []string{"/agnhost"}, args: []string{"pause"}}
	for _, name := range shellPrograms {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			t.Skipf("the pods of Kubernetes' tests need %s: %v", name, err)
		}
		agnhost.files["/bin/"+name] = path
	}
	agnhost.addLibraries(t)
	agnhost.files["/agnhost"], agnhost.files["/bin/nc"], agnhost.files["/bin/nslookup"] = helper, helper, helper
	agnhost.files["/usr/local/bin/agnhost"] = built.agnhost
	agnhost.name, agnhost.also = policyImage, agnhostNames.FindAllString(string(names), -1)
	pause := imageOf{name: pauseName.FindString(string(names)), files: map[string]string{"/usr/local/bin/guestbook": built.guestbook}, entrypoint: []string{"guestbook", "pause"}}
	if len(agnhost.also) == 0 || pause.name == "" {
		t.Fatalf("the tests name no agnhost, or no pause:\n%s", names)
	}
	dns := imageOf{name: "docker.io/example/kube-dns:latest", files: map[string]string{"/usr/local/bin/kube-dns": self()}, entrypoint: []string{"kube-dns", partDNS}}
	return []imageOf{agnhost, pause, dns}
}

// Of Kubernetes' tests those whose names match focus run, unless they match skip. docs/conformance/nodes.md has a cause for each that is left out.
const (
	suiteFocus = `\[sig-network\] (Services |.*(Netpol|NetworkPolicy))`
	suiteSkip  = `\[Disruptive\]|\[Slow\]`
)

// Environment variables: an expression instead of suiteFocus, one for tests of network-policy-api, and how many of Kubernetes' tests run at once.
const (
	policyFocusOf    = "CONTIV_E2E_POLICIES"
	suiteFocusOf     = "CONTIV_E2E_FOCUS"
	suiteProcessesOf = "CONTIV_E2E_PROCS"
)

// TestSuites runs suites that others wrote, unchanged, on bare nodes with deploy/standalone: Kubernetes' tests of Services and network policies, and the
// conformance suite of network-policy-api. Their results are those of docs/conformance/nodes.md.
func TestSuites(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		aloneOnMachine(t, suiteImages)
		return
	}
	s := bareSite(t, os.Getenv(nodeProgramsIn), built.scratch, "node-1", "node-2")
	defer func() {
		if t.Failed() {
			s.explain(t)
		}
	}()
	policies := newSuite(t)
	s.kubectl(nil, "apply", "--server-side", "-f", policies.definitions)
	s.install(t, "standalone")
	s.allReady(t)
	s.routes()
	s.kubectl(nil, "apply", "-f", "testdata/dns.yaml")
	eventually(t, "the cluster's DNS is ready", func() error { return s.podsReady(t, "kube-system") }, s.kubelets()...)
	t.Run("network-policy-api", func(t *testing.T) {
		began := time.Now()
		said := policies.run(t, s.cluster, "-test.run", "^TestConformanceProfiles$/"+os.Getenv(policyFocusOf))
		t.Logf("the suite took %s", time.Since(began).Round(time.Second))
		keep(t, "network-policy-api.txt", []byte(said))
		asOnPage(t, policySuite, rootsOf(said))
	})
	t.Run("kubernetes", func(t *testing.T) { asOnPage(t, kubernetesSuite, s.kubernetesTests(t)) })
}

// kubernetesTests runs them and returns their results.
func (s *realSite) kubernetesTests(t *testing.T) map[string]outcome {
	t.Helper()
	dir, out, focus := suiteDir(t), t.TempDir(), cmp.Or(os.Getenv(suiteFocusOf), suiteFocus)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ginkgo"), "run", "--procs", cmp.Or(os.Getenv(suiteProcessesOf), "4"), "--timeout", "120m", "--no-color",
		"--focus", focus, "--skip", suiteSkip, "--json-report", "report.json", "--output-dir", out, filepath.Join(dir, "e2e.test"), "--",
		"--kubeconfig", s.path("admin.kubeconfig"), "--kubectl-path", filepath.Join(s.bin, "kubectl"), "--num-nodes", fmt.Sprint(len(s.real)))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	began := time.Now()
	failed := cmd.Run() // the results say which tests failed
	text, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err, failed)
	}
	keep(t, "ginkgo.json", text)
	var reports []ginkgoReport
	if err := json.Unmarshal(text, &reports); err != nil {
		t.Fatal(err)
	}
	results := specsOf(reports, regexp.MustCompile(focus), regexp.MustCompile(suiteSkip))
	if len(results) == 0 {
		t.Fatalf("no test ran: %v", failed)
	}
	t.Logf("%d tests in %s", len(results), time.Since(began).Round(time.Second))
	return results
}

// keep writes what a suite says into the folder for logs, if one is wanted.
func keep(t *testing.T, name string, text []byte) {
	t.Helper()
	if logs := os.Getenv(logsTo); logs != "" {
		if err := os.WriteFile(filepath.Join(logs, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
