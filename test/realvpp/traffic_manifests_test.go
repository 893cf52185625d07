package realvpp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// role is a client pod and what policies say of it. Its name is the pod's label "role".
type role struct {
	name string
	// before and after: policies allow the client's flows before and after a change of policies.
	before, after bool
	// egress: the rule that changes is the client's own, not the server's.
	egress bool
	// ports: the server's rule names ports; without, it is for any port and protocol.
	ports bool
	// closed: a policy isolates the client for ingress and lets nobody in.
	closed bool
}

// roles are the client pods of a world. A server never sees a role that is not here.
var roles = []*role{
	{name: "kept", before: true, after: true, ports: true},
	{name: "kept-closed", before: true, after: true, closed: true},
	{name: "revoked", before: true, ports: true},
	{name: "revoked-closed", before: true, closed: true},
	{name: "revoked-egress", before: true, egress: true},
	{name: "denied", ports: true},
	{name: "denied-egress", egress: true},
	{name: "allowed", after: true, ports: true},
	{name: "allowed-egress", after: true, egress: true},
}

// The ports of servers: a Service has servedPort, no Service has highPort, which looks like a client's.
const servedPort, highPort = 8080, 40000

// server is a pod that serves, behind a separate Service unless vip is 0.
type server struct {
	name       string
	node, last int // number of the node, last byte of the address
	vip        int // last byte of the cluster IP; 0: none
}

var servers = []*server{
	{name: "near", node: 1, last: 100, vip: 1},
	{name: "far", node: 2, last: 100, vip: 2},
	{name: "spare", node: 2, last: 101},
}

// late is the server pod that appears while traffic runs.
var late = &server{name: "late", node: 1, last: 120}

func podAddr(node, last int, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd00:1:%d::%x", node, last))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.1.%d.%d", node, last))
}

func (s *server) addr(six bool) netip.Addr { return podAddr(s.node, s.last, six) }

func (s *server) clusterIP(six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", s.vip))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", s.vip))
}

// addr is that of the client pod of a role.
func (r *role) addr(six bool) netip.Addr { return podAddr(1, 10+slices.Index(roles, r), six) }

func both(addr func(six bool) netip.Addr) []string {
	return []string{addr(false).String(), addr(true).String()}
}

// trafficManifests are the files of the cluster without policies and endpoints.
func trafficManifests() map[string]string {
	var nodes, pods, services []string
	for n := range 2 {
		nodes = append(nodes, fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: node-%[1]d}
spec: {podCIDR: 10.1.%[1]d.0/24, podCIDRs: [10.1.%[1]d.0/24, "fd00:1:%[1]d::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.%[1]d}]}
`, n+1))
	}
	for _, r := range roles {
		pods = append(pods, podManifest(r.name, 1, fmt.Sprintf("{role: %s, closed: %q}", r.name, fmt.Sprint(r.closed)), both(r.addr)))
	}
	for _, s := range servers {
		pods = append(pods, s.manifest())
		if s.vip != 0 {
			services = append(services, s.service())
		}
	}
	const cluster = `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, "fd00:96::/112"]}
---
apiVersion: v1
kind: Namespace
metadata: {name: traffic, labels: {kubernetes.io/metadata.name: traffic}}
`
	return map[string]string{"00-cluster.yaml": joined(append([]string{cluster}, nodes...)), "10-pods.yaml": joined(pods), "20-services.yaml": joined(services)}
}

func joined(objects []string) string { return strings.Join(objects, "---\n") }

func (s *server) manifest() string {
	return podManifest(s.name, s.node, "{app: server}", both(s.addr))
}

func podManifest(name string, node int, labels string, ips []string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: traffic, labels: %s}
spec: {nodeName: node-%d, containers: [{name: program, image: program}]}
status: {phase: Running, podIP: %s, podIPs: [{ip: %q}, {ip: %q}]}
`, name, labels, node, ips[0], ips[0], ips[1])
}

func (s *server) service() string {
	ips := both(s.clusterIP)
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: traffic}
spec:
  clusterIP: %s
  clusterIPs: [%q, %q]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: tcp, protocol: TCP, port: 80, targetPort: %[5]d}
  - {name: udp, protocol: UDP, port: 80, targetPort: %[5]d}
`, s.name, ips[0], ips[0], ips[1], servedPort)
}

// endpointsManifest are the EndpointSlices; spare: every Service has the spare pod as well.
func endpointsManifest(spare bool) string {
	var slices []string
	for _, s := range servers {
		if s.vip == 0 {
			continue
		}
		for i, family := range []string{"IPv4", "IPv6"} {
			text := fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%d, namespace: traffic, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: tcp, protocol: TCP, port: %[4]d}, {name: udp, protocol: UDP, port: %[4]d}]
endpoints:
`, s.name, i, family, servedPort)
			of := []*server{s}
			if spare {
				of = append(of, servers[2])
			}
			for _, e := range of {
				text += fmt.Sprintf("- {addresses: [%q], nodeName: node-%d, conditions: {ready: true}, targetRef: {kind: Pod, namespace: traffic, name: %s}}\n",
					e.addr(i == 1), e.node, e.name)
			}
			slices = append(slices, text)
		}
	}
	return joined(slices)
}

// policiesManifest are the policies that allow some roles. Whether unrelated is set makes no difference for them.
func policiesManifest(allowed func(*role) bool, unrelated bool) string {
	other, let := "", []string{}
	if unrelated {
		other = "{ipBlock: {cidr: 203.0.113.0/24}}, {ipBlock: {cidr: 2001:db8::/64}}"
	}
	rule := func(direction, peers, ports string) {
		if peers != "" {
			let = append(let, fmt.Sprintf("  - {%s: [%s]%s}\n", direction, peers, ports))
		}
	}
	list := func() string {
		text := strings.Join(let, "")
		let = nil
		if text == "" {
			return " []\n"
		}
		return "\n" + text
	}
	var ports, any []string
	for _, r := range roles {
		switch {
		case !r.egress && !allowed(r):
		case r.ports:
			ports = append(ports, r.name)
		default:
			any = append(any, r.name)
		}
	}
	named := ", ports: [" + strings.Join([]string{port("TCP", servedPort), port("UDP", servedPort), port("TCP", highPort), port("UDP", highPort)}, ", ") + "]"
	rule("from", oneOf(ports), named)
	rule("from", oneOf(any), "")
	rule("from", other, "")
	out := []string{networkPolicy("servers", "app: server", "Ingress", list())}
	rule("from", other, "")
	out = append(out, networkPolicy("closed", `closed: "true"`, "Ingress", list()))
	for _, r := range roles {
		if r.egress {
			if allowed(r) {
				rule("to", "{podSelector: {matchLabels: {app: server}}}", "")
			}
			rule("to", other, "")
			out = append(out, networkPolicy(r.name, "role: "+r.name, "Egress", list()))
		}
	}
	return joined(out)
}

func port(protocol string, n int) string { return fmt.Sprintf("{protocol: %s, port: %d}", protocol, n) }

func oneOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("{podSelector: {matchExpressions: [{key: role, operator: In, values: [%s]}]}}", strings.Join(names, ", "))
}

func networkPolicy(name, pods, direction, rules string) string {
	return fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %s, namespace: traffic}
spec:
  podSelector: {matchLabels: {%s}}
  policyTypes: [%s]
  %s:%s`, name, pods, direction, strings.ToLower(direction), rules)
}
