package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// dialledPods are pods beside default/web: three of this node, one of another.
const dialledPods = `
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.1.2.0/24, podCIDRs: [10.1.2.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.2}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default, labels: {app: client}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: shop, labels: {app: app}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.4, podIPs: [{ip: 10.1.1.4}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.5, podIPs: [{ip: 10.1.1.5}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: far, namespace: shop, labels: {app: db}}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {podIP: 10.1.2.2, podIPs: [{ip: 10.1.2.2}], phase: Running}
`

// serviceWith is a Service at 10.96.1.N, ports 80 and 53, and at node port 3008N, with its endpoints.
func serviceWith(n int, addrs ...string) string {
	list := ""
	for _, a := range addrs {
		list += fmt.Sprintf("{addresses: [%s], conditions: {ready: true}},", a)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: s%[1]d, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.1.%[1]d, clusterIPs: [10.96.1.%[1]d], ports: [{name: a, port: 80, targetPort: 8080, nodePort: 3008%[1]d}, {name: b, port: 53, targetPort: 53, nodePort: 3009%[1]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%[1]d, namespace: shop, labels: {kubernetes.io/service-name: s%[1]d}}
addressType: IPv4
ports: [{name: a, port: 8080, protocol: TCP}, {name: b, port: 53, protocol: TCP}]
endpoints: [%[2]s]
`, n, list)
}

// A flow to a Service's address names the policy of the sender whose rule allows the endpoint, or that denies it.
func TestFlowsToServicesNameTheSendersPolicy(t *testing.T) {
	w := watchObjects(t, "dialled", dialledPods, serviceWith(1, "10.1.1.5"), serviceWith(2, "10.1.2.2"), serviceWith(3, "10.3.7.1"), serviceWith(4, "10.1.1.4"), `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: one, namespace: default}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 10.9.0.0/16}}]}, {to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}], ports: [{port: 8080}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: two, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 10.3.0.0/16}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 5
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: default}}}
  egress: [{action: Deny, to: [{networks: [10.3.7.0/24]}]}, {action: Allow, to: [{namespaces: {}}], ports: [{portNumber: {port: 53, protocol: TCP}}]}]
`)
	client := cniDoor("default/client")
	for i, to := range []string{"10.96.1.1:80", "10.96.1.2:80", "10.96.1.1:53", "10.96.1.3:80", "10.96.1.4:80", "192.168.16.1:30081"} {
		w.send(client, tcp(fmt.Sprintf("10.1.1.3:%d", 2000+i), to))
	}
	w.look()
	const sees, denied = "nat44: allowed TCP default/client:", "capture: dropped TCP default/client:"
	const one, guard = "egress, allowed by NetworkPolicy default/one egress rule 2; 1 connections", "egress, allowed by AdminNetworkPolicy guard egress rule 2; 1 connections"
	const isolated = "egress, denied: NetworkPolicy default/one, default/two isolate default/client for egress and no rule allows it; 1 packets"
	got := strings.Join(w.lines(nil), "\n")
	for _, line := range []string{
		sees + "2000 -> shop/db:8080 (dialled 10.96.1.1:80, source 10.1.1.3:2000) " + one,
		sees + "2001 -> shop/far:8080 (dialled 10.96.1.2:80, source 10.1.1.3:2001) " + one,
		sees + "2002 -> shop/db:53 (dialled 10.96.1.1:53, source 10.1.1.3:2002) " + guard,
		"sessions: allowed TCP default/client:2000 -> service shop/s1:80 " + one,
		"sessions: allowed TCP default/client:2001 -> service shop/s2:80 " + one,
		"sessions: allowed TCP default/client:2002 -> service shop/s1:53 " + guard,
		"sessions: allowed TCP default/client:2005 -> node node-1:30081 " + one,
		denied + "2003 -> 10.3.7.1:8080 egress, denied by AdminNetworkPolicy guard egress rule 1; 1 packets",
		denied + "2004 -> shop/app:8080 " + isolated,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is not in", line)
		}
	}
	for _, port := range []string{"2003", "2004"} {
		if strings.Contains(got, "allowed TCP default/client:"+port) {
			t.Errorf("a denied connection from port %s is shown as allowed", port)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func cniDoor(pod string) string { return "pod-" + pod }

// A session with a Service is shown when NAT44's table, which has its endpoint, was read.
func TestFlowsToServicesWaitForNAT44(t *testing.T) {
	w := watchFlows(t, "wait")
	w.took, w.pause = time.Second, 10*time.Second
	base := w.now.Add(w.pause)
	w.look() // sessions are read 2 s before the table, and 200 s later again
	w.send(clientDoor, tcp("10.1.1.3:1005", "10.96.0.10:80"))
	w.took, w.pause = 0, base.Add(202500*time.Millisecond).Sub(w.now)
	w.look()
	const line = "service default/web:80 egress, "
	if lines := strings.Join(w.lines(nil), "\n"); !strings.Contains(lines, "sessions: ") || strings.Contains(lines, line) {
		t.Errorf("sessions were read, and the table was not:\n%s", lines)
	}
	w.look()
	w.look()
	if lines := strings.Join(w.lines(nil), "\n"); strings.Count(lines, line+"allowed by NetworkPolicy default/web egress rule 2; 1 connections") != 1 {
		t.Errorf("the table was read:\n%s", lines)
	}
}

var (
	peersOfRules = []string{
		`{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}`, `{podSelector: {}}`, `{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}`,
		`{ipBlock: {cidr: 10.3.0.0/16, except: [10.3.7.0/24]}}`, `{ipBlock: {cidr: 10.1.0.0/16}}`, `{ipBlock: {cidr: 192.168.0.0/16}}`, `{ipBlock: {cidr: 0.0.0.0/0}}`,
	}
	peersOfAdmins  = []string{`{namespaces: {}}`, `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}`, `{networks: [10.3.0.0/16]}`, `{networks: [10.1.1.4/31]}`}
	portsOfRules   = []string{"", ", ports: [{port: 8080}]", ", ports: [{port: 53}]", ", ports: [{port: 80}]"}
	portsOfAdmins  = []string{"", ", ports: [{portNumber: {port: 8080, protocol: TCP}}]", ", ports: [{portNumber: {port: 53, protocol: TCP}}]"}
	podsOfPolicies = []string{"{}", "{matchLabels: {app: client}}", "{matchLabels: {app: app}}"}
)

// neverOpen denies something to each pod: a pod whose policies allow everything has no access lists.
const neverOpen = `
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: never-open}
spec: {priority: 0, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [10.9.0.0/16]}]}]}
`

// drawnPolicies are random policies of all kinds of Kubernetes, and one of Calico.
func drawnPolicies(rnd *rand.Rand) (texts []string) {
	one := func(list []string) string { return list[rnd.IntN(len(list))] }
	rules := func(format string, make func() string) string {
		var out []string
		for range rnd.IntN(4) {
			out = append(out, make())
		}
		return fmt.Sprintf(format, strings.Join(out, ", "))
	}
	for n := range 4 {
		direction, types, side := "egress", "[Egress]", "to"
		if n == 3 {
			direction, types, side = "ingress", "[Ingress]", "from"
		}
		texts = append(texts, fmt.Sprintf("\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: np%d, namespace: %s}\nspec: {podSelector: %s, policyTypes: %s, %s: %s}\n", n,
			one([]string{"default", "shop"}), one(podsOfPolicies), types, direction, rules("[%s]", func() string { return "{" + side + ": [" + one(peersOfRules) + "]" + one(portsOfRules) + "}" })))
	}
	admin := func(actions ...string) string {
		return rules("[%s]", func() string {
			return "{action: " + one(actions) + ", to: [" + one(peersOfAdmins) + "]" + one(portsOfAdmins) + "}"
		})
	}
	for n := range 2 {
		texts = append(texts, fmt.Sprintf("\napiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: anp%d}\nspec: {priority: %d, subject: {namespaces: {}}, egress: %s}\n", n, n+1, admin("Allow", "Deny", "Pass")))
	}
	texts = append(texts,
		"\napiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicy\nmetadata: {name: default}\nspec: {subject: {namespaces: {}}, egress: "+admin("Allow", "Deny")+"}\n",
		"\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: gnp}\nspec: {order: 10, selector: app == '"+one([]string{"client", "db"})+"', types: [Egress], egress: [{action: "+one([]string{"Allow", "Deny"})+", destination: {selector: app == '"+one([]string{"app", "db"})+"'}}]}\n")
	rnd.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	return append(texts[:1+rnd.IntN(len(texts))], neverOpen)
}

// deciders counts connections and packets by their source of flows and the policy that decides. Without a policy they are not counted.
type deciders map[string]uint64

func (d deciders) count(n uint64, parts ...string) {
	if n > 0 && strings.Join(parts[3:], "") != "" {
		d[strings.Join(parts, " ")] += n
	}
}

// expect adds what the meaning of the policies says about a connection to a Service.
func (d deciders) expect(c *meaning.Cluster, fate *sim.Fate, p *packet.Packet) {
	last := fate.Last
	if len(fate.Out) > 0 {
		last = fate.Out[0].Packet
	}
	end := func(a netip.Addr) *meaning.Pod {
		for _, q := range c.Pods {
			if q.NodeName == "node-1" && slices.Contains(q.IPs, a) {
				return q
			}
		}
		return nil
	}
	h := space.Header{Src: p.Src, Dst: last.Dst, Protocol: space.TCP, SrcPort: p.SrcPort, DstPort: last.DstPort, Flags: space.SYN}
	src, sender, receiver := p.Src.String(), c.Decide(end(p.Src), true, h), meaning.Decision{Allowed: true}
	if q := end(last.Dst); q != nil {
		seen := h
		seen.Src, seen.SrcPort = last.Src, last.SrcPort
		receiver = c.Decide(q, false, seen)
	}
	if last.Dst == p.Dst { // a list dropped it before NAT44
		return
	}
	if sender.Allowed { // also if the receiver's list drops it
		d.count(1, "egress", agentflows.ByNAT, src, deciderOf(&sender))
		d.count(1, "egress", agentflows.BySessions, src, deciderOf(&sender))
	}
	switch dropped, itself := denialOf(*fate) != nil, last.Dst == p.Src; {
	case dropped && !sender.Allowed && !itself: // a pod's egress does not decide about itself
		d.count(1, "dropped", agentflows.ByCapture, last.Src.String(), deciderOf(&sender))
	case dropped && !receiver.Allowed:
		d.count(1, "dropped", agentflows.ByCapture, last.Src.String(), deciderOf(&receiver))
	case !dropped && receiver.Allowed:
		d.count(1, "ingress", agentflows.BySessions, last.Src.String(), deciderOf(&receiver))
	}
}

// deciderOf is the policy and its rule, or the policies at the end of a tier; "": none.
func deciderOf(d *meaning.Decision) string {
	switch {
	case len(d.Policies) == 0:
		return ""
	case d.Rule == "":
		return "isolated by " + d.Policies[0].ID.Ref().String()
	}
	return d.Policies[0].ID.Ref().String() + " " + d.Rule
}

func shownBy(f *flows.Flow) string {
	d := &f.Decision
	switch {
	case d.Policy != "":
		return d.Policy + " " + d.Rule
	case d.Trigger != "":
		return "isolated by " + d.Trigger
	}
	return ""
}

// For random policies and Services, each flow of a connection to a Service has the policy that the meaning of the policies names: of the sender
// for the endpoint, and of the receiver.
func TestFlowsToServicesMeanTheirPolicies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(22, 1))
	seen := deciders{}
	for n := range pace.Fewer(24, 6) {
		texts := []string{dialledPods}
		for k := range 4 {
			ends := []string{"10.1.1.2", "10.1.1.3", "10.1.1.4", "10.1.1.5", "10.1.2.2", "10.3.0.1", "10.3.7.1"}
			rnd.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
			texts = append(texts, serviceWith(k+1, ends[:1+rnd.IntN(3)]...))
		}
		policies := drawnPolicies(rnd)
		w := watchObjects(t, fmt.Sprint("means", n), append(texts, policies...)...)
		want, got := w.dialAll(rnd), deciders{}
		answer, err := w.watcher.All(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range answer.Flows {
			switch f := &answer.Flows[i]; {
			case f.Protocol != model.TCP.String(), f.Verdict == flows.Dropped && f.Destination.Kind != flows.Pod && f.Destination.Kind != flows.Outside:
			case f.SeenBy == agentflows.BySessions && f.Direction == "egress" && f.Destination.Kind == flows.Pod: // at the overlay
			case f.Verdict == flows.Dropped:
				got.count(f.Packets, "dropped", f.SeenBy, f.Source.Address.String(), shownBy(f))
			default:
				got.count(f.Connections, f.Direction, f.SeenBy, f.Source.Address.String(), shownBy(f))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("world %d with %s\n%s%s\n(-want +got):\n%s", n, strings.Join(texts[1:], "---"), strings.Join(policies, "---"), strings.Join(w.lines(nil), "\n"), diff)
		}
		for k, v := range want {
			kind, by, _ := strings.Cut(k, " ")
			isolated := strings.Contains(by, "isolated")
			seen[fmt.Sprint(kind, " ", isolated)] += v
		}
		_ = w.stop()
	}
	if kinds := slices.Sorted(maps.Keys(seen)); len(kinds) != 4 {
		t.Errorf("seen: %v", seen)
	}
}

// dialAll dials each Service from each pod, and returns what flows must show.
func (w *watched) dialAll(rnd *rand.Rand) deciders {
	w.t.Helper()
	var c *meaning.Cluster
	if err := w.agent.inLoop(w.t.Context(), func() { c = meaning.Read(space.New(), slices.Clone(w.agent.reader.Proof.Objects())) }); err != nil {
		w.t.Fatal(err)
	}
	want := deciders{}
	for i, pod := range []string{"default/web", "default/client", "shop/app", "shop/db"} {
		from := netip.AddrFrom4([4]byte{10, 1, 1, byte(2 + i)})
		for k := range 4 * 2 * 6 {
			to := fmt.Sprintf("10.96.1.%d:%d", k%4+1, []int{80, 53}[k/4%2])
			if rnd.IntN(6) == 0 {
				to = fmt.Sprintf("192.168.16.1:%d", 30080+k%4+1+10*(k/4%2))
			}
			p := tcp(netip.AddrPortFrom(from, uint16(2000+k)).String(), to)
			fate := w.send(cniDoor(pod), p)
			want.expect(c, &fate, &p)
		}
	}
	w.look()
	return want
}
