package reach_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/ui/reach"
	"github.com/contiv-agent/contiv-agent/ui/sample"
)

func parse(t testing.TB, docs ...string) (changes []event.Change) {
	t.Helper()
	return manifest.Parse("test", []byte(strings.Join(docs, "\n---\n")))
}

func objectsOf(t testing.TB, docs ...string) (out []model.Object) {
	t.Helper()
	for _, ch := range parse(t, docs...) {
		if ch.Err != nil {
			t.Fatal(ch.Err)
		}
		out = append(out, ch.Object)
	}
	return out
}

func pod(namespace, name, ip string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s}}, spec: {nodeName: node-1}, status: {phase: Running, podIP: %s, podIPs: [{ip: %s}]}}", name, namespace, name, ip, ip)
}

func namespace(name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {kubernetes.io/metadata.name: %s}}}", name, name)
}

func policy(namespace, name, spec string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s, namespace: %s}, spec: {%s}}", name, namespace, spec)
}

var world = []string{ // read only
	"{apiVersion: v1, kind: Node, metadata: {name: node-1}, spec: {podCIDR: 10.1.1.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}}",
	namespace("open"), namespace("shut"), namespace("half"),
	pod("open", "a", "10.1.1.2"), pod("open", "b", "10.1.1.3"), pod("shut", "a", "10.1.1.4"), pod("half", "a", "10.1.1.5"), pod("half", "b", "10.1.1.6"),
	policy("shut", "all", "podSelector: {}, policyTypes: [Ingress, Egress]"),
	policy("half", "web", "podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress], ingress: [{ports: [{port: 80, protocol: TCP}]}]"),
}

// Each answer is one of policies: all, none, or some with an example of both.
func TestMatrix(t *testing.T) {
	m, err := reach.Of(t.Context(), objectsOf(t, world...), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(m.Names, " "); got != "outside half open shut" || m.Pods != 5 || m.More != 0 {
		t.Fatalf("%s, %d pods", got, m.Pods)
	}
	for i, want := range []string{
		"unknown some all none", // from outside
		"all some all none",     // from half
		"all some all none",     // from open
		"none none none unknown",
	} {
		var got []string
		for j, c := range m.Cells[i] {
			got = append(got, string(c.Answer))
			if c.Answer == reach.Some && (c.Allowed == nil || c.Denied == nil) || c.Answer == reach.All && c.Denied != nil || c.Answer == reach.None && c.Allowed != nil || c.Answer == reach.Unknown && c.Why == "" {
				t.Errorf("%s -> %s: %+v", m.Names[i], m.Names[j], c)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("from %s: %s, want %s", m.Names[i], strings.Join(got, " "), want)
		}
	}
	if d := m.Cells[2][1].Denied; !strings.Contains(d.Ingress, "NetworkPolicy half/web") {
		t.Errorf("open -> half is denied by %+v", d)
	}
}

func TestMatrixEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reach.Of(ctx, objectsOf(t, world...), time.Now); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A cluster with more namespaces than rows says how many have none.
func TestMatrixIsBounded(t *testing.T) {
	docs := []string{world[0]}
	for i := range reach.MostNamespaces + 3 {
		name := fmt.Sprintf("ns-%02d", i)
		docs = append(docs, namespace(name), pod(name, "a", fmt.Sprintf("10.1.1.%d", i+2)))
	}
	m, err := reach.Of(t.Context(), objectsOf(t, docs...), time.Now)
	if err != nil || len(m.Names) != reach.MostNamespaces+1 || m.More != 3 {
		t.Errorf("%d names, %d more, %v", len(m.Names), m.More, err)
	}
}

// A trial creates or replaces policies, leaves the objects as they are, and says what it ignores.
func TestTry(t *testing.T) {
	objects := objectsOf(t, world...)
	for name, tc := range map[string]struct {
		docs            []string
		tried           string
		opened, closed  int
		refused, failed bool
	}{
		"a new policy closes":       {[]string{policy("open", "none", "podSelector: {}, policyTypes: [Ingress]")}, "NetworkPolicy open/none true", 0, 1, false, false},
		"a replaced one opens":      {[]string{policy("shut", "all", "podSelector: {}, policyTypes: [Egress]")}, "NetworkPolicy shut/all false", 1, 0, false, false},
		"the same policy":           {[]string{policy("shut", "all", "podSelector: {}, policyTypes: [Ingress, Egress]")}, "NetworkPolicy shut/all false", 0, 0, false, false},
		"a pod is no policy":        {[]string{pod("open", "c", "10.1.1.9")}, "", 0, 0, true, true},
		"a policy beside a pod":     {[]string{pod("open", "c", "10.1.1.9"), policy("open", "none", "podSelector: {}, policyTypes: [Ingress]")}, "NetworkPolicy open/none true", 0, 1, true, false},
		"a policy that is no YAML":  {[]string{"{"}, "", 0, 0, true, true},
		"a kind that nobody knows":  {[]string{"{apiVersion: x/v1, kind: Widget, metadata: {name: z}}"}, "", 0, 0, false, true},
		"a policy with wrong parts": {[]string{policy("open", "odd", "podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 99999}]}]")}, "NetworkPolicy open/odd true", 0, 1, true, false},
	} {
		trial, err := reach.Try(objects, parse(t, tc.docs...))
		if errors.Is(err, reach.ErrNoPolicy) != tc.failed || (len(trial.Refused) > 0) != tc.refused {
			t.Errorf("%s: %v, refused %q", name, err, trial.Refused)
			continue
		}
		if tc.failed {
			continue
		}
		tried := fmt.Sprint(trial.Policies[0].Name, " ", trial.Policies[0].New)
		if tried != tc.tried || (len(trial.Opened) > 0) != (tc.opened > 0) || (len(trial.Closed) > 0) != (tc.closed > 0) || trial.Same() != (tc.opened+tc.closed == 0) {
			t.Errorf("%s: %s, %d opened, %d closed", name, tried, len(trial.Opened), len(trial.Closed))
		}
	}
	if len(objects) != len(world) {
		t.Error("a trial changed the objects")
	}
}

// BenchmarkOf answers for 41 x 41 pairs, with 1,000 pods.
func BenchmarkOf(b *testing.B) {
	objects := sample.New(sample.Large).Objects
	for b.Loop() {
		if _, err := reach.Of(b.Context(), objects, time.Now); err != nil {
			b.Fatal(err)
		}
	}
}
