package connectivity

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// world is what paths are planned from: the cluster with the test's objects in it.
type world struct {
	cfg       *Config
	nodes     []*machine
	endpoints []*endpoint                // test pods that run
	services  map[string]*corev1.Service // of the test
	apiServer *corev1.Service
	dns       *dnsService // nil: none found
	reused    bool        // the namespace is left from an earlier test
}

// dnsService is the cluster's DNS.
type dnsService struct {
	name      string // namespace/name
	addresses []netip.Addr
	servers   []dnsServer // ready ones
	pods      []string    // namespace/name of those without readiness, with the reason
}

// dnsServer is an endpoint of the DNS Service.
type dnsServer struct {
	address netip.AddrPort
	pod     string // namespace/name; "": unknown
}

// with returns the test pods with a role.
func (w *world) with(role string) (out []*endpoint) {
	for _, e := range w.endpoints {
		if e.role == role {
			out = append(out, e)
		}
	}
	return out
}

// namesOf returns the names of test pods with a role, on a node or on all ("").
func (w *world) namesOf(role, node string) (out []string) {
	for _, e := range w.with(role) {
		if node == "" || e.node == node {
			out = append(out, e.name)
		}
	}
	return out
}

// families returns those that a test pod on the pods' network has.
func (w *world) families() (out []int) {
	for _, family := range []int{4, 6} {
		if slices.ContainsFunc(w.with(rolePod), func(e *endpoint) bool { return e.inFamily(family).IsValid() }) {
			out = append(out, family)
		}
	}
	return out
}

// base plans everything but policies.
func (w *world) base() *plan {
	p := &plan{limit: w.cfg.Limit}
	for _, family := range w.families() {
		if w.cfg.wants(GroupPods) {
			w.pods(p, family)
		}
		if w.cfg.wants(GroupHosts) {
			w.hosts(p, family)
		}
		if w.cfg.wants(GroupServices) {
			w.clusterIPs(p, family)
			w.nodePorts(p, family)
			w.emptyService(p, family)
		}
	}
	if w.cfg.wants(GroupServices) {
		w.kubernetesService(p)
	}
	if w.cfg.wants(GroupDNS) {
		w.lookups(p)
	}
	return p
}

// largeTransfer is enough for many packets of full size.
const largeTransfer = 256 << 10

// pods plans the paths between pods, of all pairs of nodes.
func (w *world) pods(p *plan, family int) {
	for _, from := range w.with(rolePod) {
		for _, to := range w.endpoints {
			of, where := otherNode, "other node"
			if from.node == to.node {
				of, where = sameNode, "same node"
			}
			if to.role != map[class]string{sameNode: rolePeer, otherNode: rolePod}[of] || !from.inFamily(family).IsValid() || !to.inFamily(family).IsValid() {
				continue
			}
			at := hostPort(to.inFamily(family), echoPort)
			one := func(what, protocol string, pr probe.Probe) {
				w.toPod(p, p.check(GroupPods, of, family, where+", "+what), from, to, protocol, pr)
			}
			one("TCP", "TCP", probe.Probe{Kind: probe.TCP, To: at})
			one("UDP", "UDP", probe.Probe{Kind: probe.UDP, To: at})
			one("ICMP", "ICMP", probe.Probe{Kind: probe.ICMP, To: to.inFamily(family).String()})
			one("full-size packets", "UDP", probe.Probe{Kind: probe.MTU, To: at})
			one("full-size packets", "TCP", probe.Probe{Kind: probe.TCP, To: at, Bytes: largeTransfer})
		}
	}
	// Peers as clients, too: this distinguishes a pod that answers nobody from one that nobody reaches.
	for _, from := range w.with(rolePeer) {
		for _, to := range w.with(rolePod) {
			if to.node == from.node && from.inFamily(family).IsValid() && to.inFamily(family).IsValid() {
				c := p.check(GroupPods, sameNode, family, "same node, TCP")
				w.toPod(p, c, from, to, "TCP", probe.Probe{Kind: probe.TCP, To: hostPort(to.inFamily(family), echoPort)})
			}
		}
	}
}

// toPod adds a path to a test pod, which has to answer itself.
func (w *world) toPod(p *plan, c *check, from, to *endpoint, protocol string, pr probe.Probe) {
	p.addPath(c, &path{
		from: from, pod: to, node: to.node, to: to.name, probe: pr, verify: answeredBy(to.name),
		ask: w.question(from, "pod:"+w.cfg.Namespace+"/"+to.name, echoPort, protocol),
	})
}

// question is one for trace.
func (w *world) question(from *endpoint, to string, port int, protocol string) Question {
	q := Question{From: "pod:" + w.cfg.Namespace + "/" + from.name, To: to, Protocol: protocol}
	if from.role == roleHost {
		q.From = "node:" + from.node
	}
	if protocol != "ICMP" {
		q.To += ":" + strconv.Itoa(port)
	}
	return q
}

// hosts plans the paths between the nodes' own network and pods.
func (w *world) hosts(p *plan, family int) {
	for _, from := range w.with(roleHost) {
		for _, to := range w.endpoints {
			if a := to.inFamily(family); to.role != roleHost && a.IsValid() && (to.role == rolePod || to.node == from.node) {
				c := p.check(GroupHosts, hostToPod, family, "node to pods, TCP")
				w.toPod(p, c, from, to, "TCP", probe.Probe{Kind: probe.TCP, To: hostPort(a, echoPort)})
				if to.role == rolePod {
					c = p.check(GroupHosts, hostToPod, family, "node to pods, UDP")
					w.toPod(p, c, from, to, "UDP", probe.Probe{Kind: probe.UDP, To: hostPort(a, echoPort)})
				}
			}
		}
	}
	for _, to := range w.with(roleHost) {
		a := w.nodeAddress(to.node, family)
		if !a.IsValid() {
			continue
		}
		at := hostPort(a, w.cfg.HostPort)
		add := func(of class, name string, from *endpoint, pr probe.Probe) {
			p.addPath(p.check(GroupHosts, of, family, name), &path{from: from, node: to.node, to: to.name + " at " + at, probe: pr, verify: answeredBy(to.name)})
		}
		for _, from := range w.endpoints {
			switch {
			case from.role == rolePod && from.inFamily(family).IsValid():
				add(podToHost, "pods to node, TCP", from, probe.Probe{Kind: probe.TCP, To: at})
				add(podToHost, "pods to node, UDP", from, probe.Probe{Kind: probe.UDP, To: at})
			case from.role == roleHost && from.node != to.node && w.nodeAddress(from.node, family).IsValid():
				add(nodeToNode, "node to node, TCP", from, probe.Probe{Kind: probe.TCP, To: at})
			}
		}
	}
}

// node returns a node by its name.
func (w *world) node(name string) *machine {
	at := slices.IndexFunc(w.nodes, func(m *machine) bool { return m.name == name })
	if at < 0 {
		return &machine{name: name}
	}
	return w.nodes[at]
}

func (w *world) nodeAddress(node string, family int) netip.Addr {
	return ofFamily(w.node(node).addresses, family)
}

// lookups plans DNS: of a Service's name by each pod's name servers, of the headless Service's endpoints, and at each server directly.
func (w *world) lookups(p *plan) {
	c := p.check(GroupDNS, lookup, 0, "kubernetes.default")
	if w.dns == nil {
		c.Found = "no cluster DNS found" + w.foundServers()
		return
	}
	head := p.check(GroupDNS, lookup, 0, "headless Service")
	ask := p.check(GroupDNS, askServer, 0, "each DNS server")
	for _, from := range w.endpoints {
		if from.role == rolePeer {
			continue
		}
		at := netip.AddrPortFrom(w.dns.addresses[0], 53)
		p.addPath(c, &path{
			from: from, to: "kubernetes.default at " + at.String(), service: w.dns.name, probe: probe.Probe{Kind: probe.DNS, To: "kubernetes.default"},
			verify: contains(w.apiServer.Spec.ClusterIPs), ask: w.question(from, "service:"+w.dns.name, 53, "UDP"),
		})
		p.addPath(head, &path{
			from: from, to: headless, service: w.dns.name, probe: probe.Probe{Kind: probe.DNS, To: headless + "." + w.cfg.Namespace},
			verify: contains(w.headlessAddresses(w.families()[0])), ask: w.question(from, "service:"+w.dns.name, 53, "UDP"),
		})
		for _, s := range w.dns.servers {
			if from.role == rolePod && from.inFamily(map[bool]int{true: 4, false: 6}[s.address.Addr().Is4()]).IsValid() {
				p.addPath(ask, &path{
					from: from, to: s.String(), probe: probe.Probe{Kind: probe.DNS, To: "kubernetes.default", Server: s.address.String()},
					ask: w.question(from, "pod:"+s.pod, int(s.address.Port()), "UDP"),
				})
			}
		}
	}
}

// foundServers says which name servers pods have, although no Service has these addresses.
func (w *world) foundServers() string {
	for _, e := range w.with(rolePod) {
		if len(e.servers) > 0 { // one of them was asked
			return fmt.Sprintf(": pods ask %s, and no Service has this address", e.servers[0])
		}
	}
	return ": pods have no name server"
}

// headlessAddresses returns the addresses that the headless Service has in a family.
func (w *world) headlessAddresses(family int) (out []string) {
	for _, e := range w.with(rolePod) {
		if a := e.inFamily(family); a.IsValid() {
			out = append(out, a.String())
		}
	}
	return out
}

// String is "kube-system/coredns-1 at 10.1.2.5:53".
func (s dnsServer) String() string {
	if s.pod == "" {
		return s.address.String()
	}
	return s.pod + " at " + s.address.String()
}

// contains verifies that DNS has returned these addresses, and perhaps others.
func contains(want []string) func(*probe.Outcome) string {
	return func(o *probe.Outcome) string {
		for _, a := range want {
			if !slices.Contains(o.Addresses, a) {
				return fmt.Sprintf("DNS returned %q, and %s is missing", o.Addresses, a)
			}
		}
		return ""
	}
}
