package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
)

// aged is a pod, and a Service with session affinity that has an external address.
const aged = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: prod}
spec: {type: LoadBalancer, clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], sessionAffinity: ClientIP, externalIPs: [203.0.113.9], ports: [{port: 80, protocol: TCP, name: web, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: prod, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: web, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.1.1.3], conditions: {ready: true}, nodeName: node-1}]
`

// TestCrashEndsWaits: what waits for the agent of a VPP that crashed gets the crash as its error, until RestartVPP. The crash is one that
// nat44's page names: a client sends to an external address, a Service with session affinity gets the address, and the client sends there
// once more from the same port when its session has expired.
func TestCrashEndsWaits(t *testing.T) {
	c := cluster(t, Config{Agent: agent.Config{ServiceRenderer: agent.RendererNAT44}}, talkers(t))
	step := Step{Question: Question{From: "pod:prod/client", To: "203.0.113.9:80", Protocol: "TCP"}, SourcePort: 40000, OneWay: true}
	if a, err := c.Inject(t.Context(), step); err != nil || a.At != "203.0.113.9" {
		t.Fatalf("%v %v", a, err)
	}
	if err := c.Advance(t.Context(), 3*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), objects(t, aged)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Inject(t.Context(), step); err != nil || c.Sim("node-1").Crashed() == nil {
		t.Fatalf("VPP lives: is the client's session freed now? Then nat44's page is wrong, and this test needs another crash (%v)", err)
	}
	dead := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "vpp crashed: nat44-ed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	dead("advance", c.Advance(t.Context(), time.Second))
	dead("restart the agent", c.RestartAgent(t.Context(), "node-1"))
	if err := c.RestartVPP(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.RestartAgent(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.Advance(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
}
