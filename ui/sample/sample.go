// Package sample makes a cluster for tests of the page: objects, agents' answers, and flows that a test adds to.
//
// Invariant: equal sizes make equal clusters; the flows agree with the policies of the objects.
package sample

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// Size is the size of a cluster. Each namespace has five workloads, and a Service for each.
type Size struct{ Nodes, Namespaces, Replicas int }

// Small and Large are the sizes that docs/ui.md shows: 15 pods, and 1,000 pods behind 200 Services.
var (
	Small = Size{Nodes: 3, Namespaces: 1, Replicas: 3}   // read only
	Large = Size{Nodes: 10, Namespaces: 40, Replicas: 5} // read only
)

// workloads of each namespace, and the ports of their Services.
var workloads = []struct {
	name string
	port uint16
}{{"client", 80}, {"web", 8080}, {"api", 9000}, {"db", 5432}, {"worker", 80}} // read only

// Begin is the time of the first flows.
var Begin = time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC) // read only

// Cluster implements watch.Source.
type Cluster struct {
	size    Size
	Objects []model.Object

	mu     sync.Mutex // of the rest
	stores map[string]*flows.Store
	now    time.Time
	silent map[string]bool
}

// New returns a cluster in which each workload has been seen once.
func New(size Size) *Cluster {
	c := &Cluster{size: size, stores: map[string]*flows.Store{}, now: Begin, silent: map[string]bool{}}
	for i := range size.Nodes {
		c.stores[nodeName(i)] = flows.NewStore(4096)
	}
	for _, ch := range manifest.Parse("sample", []byte(c.manifests())) {
		if ch.Err != nil {
			panic(ch.Err) // our own objects
		}
		c.Objects = append(c.Objects, ch.Object)
	}
	for ns := range size.Namespaces {
		for r := range size.Replicas {
			c.addNamespace(ns, r)
		}
	}
	return c
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

func namespaceName(i int) string {
	if i == 0 {
		return "shop"
	}
	return fmt.Sprintf("team-%02d", i)
}

func podAddr(ns, workload, replica int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(ns + 1), byte(workload), byte(replica + 2)})
}

func serviceAddr(ns, workload int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 255, byte(ns), byte(workload + 1)})
}

// nodeOf is the node of a pod.
func (c *Cluster) nodeOf(ns, workload, replica int) string {
	return nodeName((ns + workload + replica) % c.size.Nodes)
}

func (c *Cluster) pod(ns, workload, replica int) flows.Peer {
	name := workloads[workload].name
	return flows.Peer{
		Kind: flows.Pod, Address: podAddr(ns, workload, replica), Namespace: namespaceName(ns), Name: fmt.Sprintf("%s-%d", name, replica), Workload: name,
		Node: c.nodeOf(ns, workload, replica),
	}
}

func (c *Cluster) manifests() string {
	var b strings.Builder
	for i := range c.size.Nodes {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {addresses: [{type: InternalIP, address: 192.168.0.%d}]}}\n", nodeName(i), i+1)
	}
	for ns := range c.size.Namespaces {
		name := namespaceName(ns)
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {kubernetes.io/metadata.name: %s}}}\n", name, name)
		for w, what := range workloads {
			fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {clusterIP: %s, clusterIPs: [%s], ports: [{port: %d, protocol: TCP}], selector: {app: %s}}}\n",
				what.name, name, serviceAddr(ns, w), serviceAddr(ns, w), what.port, what.name)
			for r := range c.size.Replicas {
				fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s-%d, namespace: %s, labels: {app: %s}}, spec: {nodeName: %s}, status: {phase: Running, podIP: %s, podIPs: [{ip: %s}]}}\n",
					what.name, r, name, what.name, c.nodeOf(ns, w, r), podAddr(ns, w, r), podAddr(ns, w, r))
			}
		}
		fmt.Fprintf(&b, "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: %s}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 5432, protocol: TCP}]}]}}\n", name)
	}
	return b.String()
}

// addNamespace adds what each workload of a namespace sends.
func (c *Cluster) addNamespace(ns, replica int) {
	world := flows.Peer{Kind: flows.Outside, Address: netip.AddrFrom4([4]byte{198, 51, 100, byte(replica + 1)})}
	c.addConnection(c.pod(ns, 0, replica), ns, 1, replica)
	c.addConnection(c.pod(ns, 1, replica), ns, 2, replica)
	c.addConnection(c.pod(ns, 2, replica), ns, 3, replica)
	c.addConnection(c.pod(ns, 0, replica), (ns+1)%c.size.Namespaces, 1, replica)
	c.addFlow(flows.Flow{
		Node: c.nodeOf(ns, 1, replica), Source: world, Destination: c.pod(ns, 1, replica), Port: 8080, Verdict: flows.Allowed, Direction: "ingress",
		Decision: flows.Decision{Text: "allowed: no policy applies to the pod"}, Counts: flows.Counts{Connections: 2}, SeenBy: agentflows.BySessions,
	})
	c.addDenial(ns, replica)
}

// addDenial adds a worker's packet to a database, which its policy denies.
func (c *Cluster) addDenial(ns, replica int) {
	name := namespaceName(ns) + "/db"
	c.addFlow(flows.Flow{
		Node: c.nodeOf(ns, 3, replica), Source: c.pod(ns, 4, replica), Destination: c.pod(ns, 3, replica), Port: 5432, Verdict: flows.Dropped, Direction: "ingress",
		Decision: flows.Decision{Text: fmt.Sprintf("denied: NetworkPolicy %s isolates %s-%d for ingress and no rule allows it", name, name, replica), Policy: "NetworkPolicy " + name, Tier: "default"},
		Counts:   flows.Counts{Packets: 1, Bytes: 60}, SeenBy: agentflows.ByCapture,
	})
}

// addConnection adds a connection through a Service, as the sender's access list, NAT44 and the receiver's access list show it.
func (c *Cluster) addConnection(from flows.Peer, ns, workload, replica int) {
	to, at, port := c.pod(ns, workload, replica), serviceAddr(ns, workload), workloads[workload].port
	service := flows.Peer{Kind: flows.Service, Namespace: namespaceName(ns), Name: workloads[workload].name, Address: at}
	sent := flows.Decision{Text: "allowed: no policy applies to the pod"}
	got := sent
	if workloads[workload].name == "db" {
		name := "NetworkPolicy " + namespaceName(ns) + "/db"
		got = flows.Decision{Text: "allowed by " + name + " ingress rule 1", Policy: name, Tier: "default", Rule: "ingress rule 1"}
	}
	one := flows.Counts{Connections: 1}
	c.addFlow(flows.Flow{Node: from.Node, Source: from, Destination: service, Port: port, Verdict: flows.Allowed, Direction: "egress", Decision: sent, Counts: one, SeenBy: agentflows.BySessions})
	c.addFlow(flows.Flow{
		Node: from.Node, Source: from, Destination: to, Port: port, Verdict: flows.Allowed, Direction: "egress", Decision: sent, Counts: flows.Counts{Connections: 1, Packets: 10, Bytes: 4200}, SeenBy: agentflows.ByNAT,
		Translation: &flows.Translation{Dialled: netip.AddrPortFrom(at, port), Source: netip.AddrPortFrom(from.Address, 40000), Service: service.Namespace + "/" + service.Name},
	})
	c.addFlow(flows.Flow{Node: to.Node, Source: from, Destination: to, Port: port, Verdict: flows.Allowed, Direction: "ingress", Decision: got, Counts: one, SeenBy: agentflows.BySessions})
}

func (c *Cluster) addFlow(f flows.Flow) {
	f.Protocol, f.SourcePort, f.First, f.Last = "TCP", 40000, c.now, c.now
	c.stores[f.Node].Add(f)
}

// Deny adds a denied packet of each worker of a namespace, later than all flows so far.
func (c *Cluster) Deny(ns int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	for r := range c.size.Replicas {
		c.addDenial(ns, r)
	}
}

// Attack adds a packet of a node to a database of the first namespace: an edge that the map does not have before.
func (c *Cluster) Attack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	c.addFlow(flows.Flow{
		Node: c.nodeOf(0, 3, 0), Source: flows.Peer{Kind: flows.Outside, Address: netip.MustParseAddr("203.0.113.9")}, Destination: c.pod(0, 3, 0), Port: 22, Verdict: flows.Dropped, Direction: "ingress",
		Decision: flows.Decision{Text: "denied: NetworkPolicy shop/db isolates shop/db-0 for ingress and no rule allows it", Policy: "NetworkPolicy shop/db", Tier: "default"},
		Counts:   flows.Counts{Packets: 3, Bytes: 180}, SeenBy: agentflows.ByCapture,
	})
}

// Silence makes the agent of a node stop to answer, or answer again.
func (c *Cluster) Silence(node string, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent[node] = silent
}

// Nodes implements watch.Source.
func (c *Cluster) Nodes(context.Context) (names []string, err error) {
	for i := range c.size.Nodes {
		names = append(names, nodeName(i))
	}
	return names, nil
}

// Status implements watch.Source. The second node has a problem.
func (c *Cluster) Status(_ context.Context, node string) (*status.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent[node] {
		return nil, fmt.Errorf("no agent answers at %s", node)
	}
	st := &status.Status{
		Node: node, InSync: true, Ready: true, Healthy: true, Values: 7 * c.size.Namespaces, Mappings: 5 * c.size.Namespaces,
		VPP:     status.VPP{Connected: true, Version: "25.10-release", Connections: 1, Reclassify: "on"},
		Sources: []status.Source{{Name: "kubernetes", Status: "in-sync"}}, Ifs: &status.Interfaces{Uplink: "GigabitEthernet0/8/0", Overlay: "vxlan_tunnel0"},
		NAT: &nattable.Status{Used: 1200, Limit: 63000}, Last: &status.Transaction{Seq: 42, Cause: "endpointslice/shop/web-x7", Mod: 1},
		Services: make([]status.Service, 5*c.size.Namespaces), Policies: make([]status.Policy, c.size.Namespaces),
	}
	if node == nodeName(1) {
		st.Healthy, st.Summary = false, "1 REFUSED"
		st.Problems = []status.Problem{{Object: "Service shop/legacy", State: "REFUSED", Text: "spec.ports[0].protocol: SCTP needs the renderer cnat"}}
	}
	return st, nil
}

// Flows implements watch.Source.
func (c *Cluster) Flows(_ context.Context, node string, after uint64) (*agentflows.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	store := c.stores[node]
	if c.silent[node] || store == nil {
		return nil, fmt.Errorf("no agent answers at %s", node)
	}
	return &agentflows.Answer{
		Node: node, Flows: store.Select(after, nil, 4096), Next: store.Number(), Forgotten: store.Forgotten(),
		Sources: []agentflows.Source{{Name: agentflows.ByCapture, Seen: 1}, {Name: agentflows.BySessions, Seen: store.Number()}, {Name: agentflows.ByNAT, Seen: store.Number()}},
	}, nil
}

// Policy implements watch.Source: only databases have a policy.
func (c *Cluster) Policy(_ context.Context, pod model.PodID) (*policy.Description, error) {
	d := &policy.Description{Endpoint: pod.String(), Addresses: []string{"10.1.3.2/32"}, Interfaces: []string{"tap1"}, Profiles: []string{"kns." + pod.Namespace}}
	if strings.HasPrefix(pod.Name, "db-") {
		d.Ingress = []policy.Tier{{Name: "default", End: "deny", Policies: []policy.Policy{{
			Object: "NetworkPolicy " + pod.Namespace + "/db", Selector: "app == 'db'",
			Rules: []policy.Rule{{Name: "ingress rule 1", Action: "allow", Match: "tcp from {app == 'api'} to ports 5432"}},
		}}}}
	}
	return d, nil
}
