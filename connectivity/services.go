package connectivity

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// manyTimes is how many connections a Service with several endpoints gets: each of three endpoints is missed once in two thousand tests.
const manyTimes = 24

// clusterAddress returns the cluster IP of a Service in a family; invalid: none.
func clusterAddress(svc *corev1.Service, family int) netip.Addr {
	var all []netip.Addr
	if svc == nil {
		return netip.Addr{}
	}
	for _, text := range svc.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return ofFamily(all, family)
}

// toService adds a path by a Service of the test.
func (w *world) toService(p *plan, c *check, from *endpoint, service, to, protocol string, pr probe.Probe, verify func(*probe.Outcome) string) *path {
	return p.addPath(c, &path{
		from: from, service: service, to: to, probe: pr, verify: verify,
		ask: w.question(from, "service:"+w.cfg.Namespace+"/"+service, 80, protocol),
	})
}

// clusterIPs plans the Services with a cluster IP and endpoints.
func (w *world) clusterIPs(p *plan, family int) {
	to := func(service string) string {
		if a := clusterAddress(w.services[service], family); a.IsValid() {
			return hostPort(a, 80)
		}
		return ""
	}
	for _, from := range w.endpoints {
		if from.role == rolePeer || from.role == rolePod && !from.inFamily(family).IsValid() {
			continue
		}
		servers := answeredBy(w.namesOf(rolePod, "")...)
		add := func(name, service, protocol string, pr probe.Probe, verify func(*probe.Outcome) string) {
			if pr.To = to(service); pr.To != "" {
				w.toService(p, p.check(GroupServices, toClusterIP, family, name), from, service, service+" "+pr.To, protocol, pr, verify)
			}
		}
		where := map[string]string{rolePod: "pods", roleHost: "node"}[from.role]
		add("ClusterIP, TCP, from "+where, clusterIP, "TCP", probe.Probe{Kind: probe.TCP, Times: manyTimes}, servers)
		add("ClusterIP, UDP, from "+where, clusterIP, "UDP", probe.Probe{Kind: probe.UDP}, servers)
		if from.role == roleHost {
			continue
		}
		add("ClusterIP, large transfer", clusterIP, "TCP", probe.Probe{Kind: probe.TCP, Bytes: largeTransfer}, servers)
		add("internalTrafficPolicy Local", internalLocal, "TCP", probe.Probe{Kind: probe.TCP, Times: 4}, answeredBy(w.namesOf(rolePod, from.node)...))
		if len(w.with(rolePod)) > 1 {
			add("session affinity", affinity, "TCP", probe.Probe{Kind: probe.TCP, Times: 8}, sameServer)
		}
	}
}

// sameServer verifies session affinity.
func sameServer(o *probe.Outcome) string {
	for _, a := range o.Answers {
		if a.Server != o.Answers[0].Server {
			return fmt.Sprintf("%s and %s answered the same client", o.Answers[0].Server, a.Server)
		}
	}
	return ""
}

// nodePorts plans the node ports of all nodes, from pods and nodes.
func (w *world) nodePorts(p *plan, family int) {
	for _, from := range w.endpoints {
		if from.role == rolePeer || from.role == rolePod && !from.inFamily(family).IsValid() {
			continue
		}
		where := map[string]string{rolePod: "pods", roleHost: "nodes"}[from.role]
		for _, node := range w.nodes {
			a := w.nodeAddress(node.name, family)
			if !a.IsValid() {
				continue
			}
			for _, port := range nodePortsOf(w.services[nodePort], family) {
				kind := map[corev1.Protocol]probe.Kind{corev1.ProtocolTCP: probe.TCP, corev1.ProtocolUDP: probe.UDP}[port.Protocol]
				pr := probe.Probe{Kind: kind, To: hostPort(a, int(port.NodePort)), Times: map[probe.Kind]int{probe.TCP: manyTimes / 4}[kind]}
				c := p.check(GroupServices, toNodePort, family, fmt.Sprintf("NodePort, %s, from %s", port.Protocol, where))
				w.toService(p, c, from, nodePort, node.name+" at "+pr.To, string(port.Protocol), pr, answeredBy(w.namesOf(rolePod, "")...)).toNode(node.name, pr.To)
			}
			w.nodePortLocal(p, family, from, node, a)
		}
	}
}

// toNode makes a path one to an address of a node.
func (p *path) toNode(node, at string) { p.node, p.ask.To = node, at }

// nodePortLocal plans the node port with externalTrafficPolicy Local, at the node with the endpoint: that endpoint sees the client's address.
func (w *world) nodePortLocal(p *plan, family int, from *endpoint, node *machine, a netip.Addr) {
	servers := w.namesOf(rolePod, node.name)
	if node != w.nodes[0] || len(servers) == 0 {
		return
	}
	for _, port := range nodePortsOf(w.services[nodePortLocal], family) {
		at := hostPort(a, int(port.NodePort))
		client := from.inFamily(family)
		if from.role == roleHost {
			client = w.nodeAddress(from.node, family)
		}
		verify := func(o *probe.Outcome) string {
			if wrong := answeredBy(servers...)(o); wrong != "" || from.node == node.name || !client.IsValid() {
				return wrong
			}
			if at := slices.IndexFunc(o.Answers, func(a probe.Answer) bool { return a.Client != client.String() }); at >= 0 {
				return fmt.Sprintf("the endpoint saw the client %s, want %s: its address is not kept", o.Answers[at].Client, client)
			}
			return ""
		}
		c := p.check(GroupServices, toNodePort, family, "externalTrafficPolicy Local")
		w.toService(p, c, from, nodePortLocal, node.name+" at "+at, "TCP", probe.Probe{Kind: probe.TCP, To: at}, verify).toNode(node.name, at)
	}
}

// nodePortsOf returns the ports of a Service that has node ports in a family.
func nodePortsOf(svc *corev1.Service, family int) (out []corev1.ServicePort) {
	if !clusterAddress(svc, family).IsValid() {
		return nil
	}
	for _, port := range svc.Spec.Ports {
		if port.NodePort != 0 {
			out = append(out, port)
		}
	}
	return out
}

// emptyService plans the Service without endpoints, which has to refuse.
func (w *world) emptyService(p *plan, family int) {
	a := clusterAddress(w.services[empty], family)
	if !a.IsValid() {
		return
	}
	for _, from := range w.endpoints {
		if from.role == rolePeer || from.role == rolePod && !from.inFamily(family).IsValid() {
			continue
		}
		at := hostPort(a, 80)
		c := p.check(GroupServices, toEmpty, family, "without endpoints: refused")
		p.addPath(c, &path{from: from, service: empty, to: empty + " " + at, probe: probe.Probe{Kind: probe.Refused, To: at}})
	}
}

// kubernetesService plans the API server's Service, from pods.
func (w *world) kubernetesService(p *plan) {
	if w.apiServer == nil {
		return
	}
	c := p.check(GroupServices, toAPIServer, 0, "API server, from pods")
	for _, from := range w.with(rolePod) {
		for _, family := range []int{4, 6} {
			a := clusterAddress(w.apiServer, family)
			if !a.IsValid() || !from.inFamily(family).IsValid() || len(w.apiServer.Spec.Ports) == 0 {
				continue
			}
			port := int(w.apiServer.Spec.Ports[0].Port)
			p.addPath(c, &path{
				from: from, service: "kubernetes", to: "kubernetes " + hostPort(a, port), probe: probe.Probe{Kind: probe.TLS, To: hostPort(a, port)},
				ask: w.question(from, "service:default/kubernetes", port, "TCP"),
			})
		}
	}
}
