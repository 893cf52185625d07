package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
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

// late is the range of the cluster IP of aged, which the agent did not know when the client dialled.
const late = `
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: late}
spec: {cidrs: [10.96.0.0/16]}
`

// grownOld returns a cluster in which a client has dialled an address before the Service has it, and once more from the same port when its
// session had expired. It returns what becomes of a packet from another port.
func grownOld(t *testing.T, addr, more string) (*Cluster, Arrival) {
	t.Helper()
	c := cluster(t, Config{Agent: agent.Config{Services: config.ServedBy(agent.RendererNAT44)}}, talkers(t))
	step := Step{Question: Question{From: "pod:prod/client", To: addr + ":80", Protocol: "TCP"}, SourcePort: 40000, OneWay: true}
	if a, err := c.Inject(t.Context(), step); err != nil || a.At != addr {
		t.Fatalf("%v %v", a, err)
	}
	if err := c.Advance(t.Context(), 3*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), objects(t, aged+more)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Inject(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	step.SourcePort++ // the old session translates packets of its port to nowhere
	a, err := c.Inject(t.Context(), step)
	if err != nil {
		t.Fatal(err)
	}
	return c, a
}

// TestServicesDoNotKill: a Service with session affinity gets an external address that a client has an expired session with. With affinity
// at that address the client's next packet would kill VPP (rule A12 of nat44).
func TestServicesDoNotKill(t *testing.T) {
	c, a := grownOld(t, "203.0.113.9", "")
	if err := c.Sim("node-1").Crashed(); err != nil || a.Lost != "" {
		t.Errorf("%+v; VPP: %v", a, err)
	}
}

// TestCrashEndsWaits: what waits for the agent of a VPP that crashed gets the crash as its error, until RestartVPP. VPP crashes for a client
// that dialled a cluster IP before the agent knew its range, which nat44's page names.
func TestCrashEndsWaits(t *testing.T) {
	c, _ := grownOld(t, "10.96.0.9", "\n---\n"+late)
	if c.Sim("node-1").Crashed() == nil {
		t.Fatal("VPP lives: is the client's session freed now? Then nat44's page is wrong, and this test needs another crash")
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
