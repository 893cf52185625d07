package trace

import (
	"context"
	"fmt"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
)

// elsewhere is a Service whose endpoint is outside the cluster.
const elsewhere = `---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: prod}
spec: {clusterIP: 10.96.0.3, clusterIPs: [10.96.0.3], ports: [{name: tcp, port: 80, targetPort: 8080}, {name: udp, port: 53, targetPort: 5353, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outside-1, namespace: prod, labels: {kubernetes.io/service-name: outside}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 5353, protocol: UDP}]
endpoints: [{addresses: [198.51.100.9], conditions: {ready: true}}]
`

// The endpoint of a Service that a pod dialled does not reach the pod if the pod's policies deny the endpoint in both directions, although the
// pod's packet made a session of NAT44 and one at the pod's interface.
func TestServicesDoNotInvite(t *testing.T) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		for _, k := range []struct{ sender, address, vip string }{
			{"pod:prod/near", "10.1.1.3", "10.96.0.1"}, {"pod:prod/far", "10.1.2.3", "10.96.0.2"}, {"external:198.51.100.9@node-1", "198.51.100.9", "10.96.0.3"},
		} {
			for _, p := range []struct {
				proto, flags string
				port, target int
			}{{"TCP", "S", 80, 8080}, {"TCP", "PA", 80, 8080}, {"UDP", "", 53, 5353}} {
				t.Run(fmt.Sprintf("%s/%s/%s%s", renderer, k.sender, p.proto, p.flags), func(t *testing.T) {
					c := NewCluster(Config{Agent: agent.Config{Services: config.ServedBy(renderer)}})
					t.Cleanup(c.Close)
					change(t, c, objects(t, talkers(t)+elsewhere+rulesOf("no-out", "client", "Egress", "", "")+rulesOf("no-in", "client", "Ingress", "", ""))...)
					send := func(from, to, flags string, port int) Answer {
						t.Helper()
						line := fmt.Sprintf(`{"from":%q,"to":%q,"protocol":%q,"sourcePort":%d,"flags":%q,"oneWay":true}`, from, to, p.proto, port, flags)
						a := c.Send(context.Background(), steps(t, line)[0])
						if a.Error != "" {
							t.Fatal(a.Error)
						}
						return a
					}
					for _, own := range []int{4000, 40000} {
						first := p.flags
						if first != "" {
							first = "S"
						}
						if a := send("pod:prod/client", fmt.Sprintf("%s:%d", k.vip, p.port), first, own); a.Verdict == Delivered {
							t.Fatalf("the client's egress denies the endpoint: %v", a)
						}
						for range 2 {
							if a := send(k.sender, fmt.Sprintf("10.1.1.2:%d", own), p.flags, p.target); a.Verdict == Delivered {
								t.Errorf("port %d: the endpoint reaches the client: %v", own, a)
							}
							send("pod:prod/client", fmt.Sprintf("%s:%d", k.vip, p.port), first, own)
						}
					}
				})
			}
		}
	}
}
