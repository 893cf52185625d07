package connectivity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// explain gathers facts about the paths that failed, and gives these paths their probable causes.
func (t *run) explain(ctx context.Context, p *plan) {
	d := &diagnosis{world: &t.world}
	for _, c := range p.checks {
		d.all = append(d.all, c.paths...)
	}
	if len(d.failing(nil)) == 0 || ctx.Err() != nil {
		return
	}
	eachAtOnce(t.nodes, func(m *machine) {
		if m.status == nil {
			return
		}
		t.askAgent(ctx, m)                                            // it knows the test's Services now
		m.differences, _ = t.agents.Differences(ctx, m.name, m.agent) // an agent that does not answer has trouble
	})
	t.describe(ctx, d.suspects())
	d.foreign = t.foreignEndpoints(ctx)
	d.traces = t.trace(ctx, p)
	d.explain()
}

// foreignEndpoints returns endpoints of the test's Services that are no pods of the test.
func (t *run) foreignEndpoints(ctx context.Context) (out map[string][]string) {
	all, err := t.endpointSlices(ctx, t.cfg.Namespace, "")
	if err != nil {
		return nil // the other facts remain
	}
	out = map[string][]string{}
	for _, s := range all {
		service := s.Labels[discoveryv1.LabelServiceName]
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				if !slices.ContainsFunc(t.with(rolePod), func(e *endpoint) bool { return slices.Contains(addressTexts(e), a) }) {
					out[service] = append(out[service], fmt.Sprintf("EndpointSlice %s/%s has the endpoint %s, which no pod of the test has", s.Namespace, s.Name, a))
				}
			}
		}
	}
	return out
}

func addressTexts(e *endpoint) (out []string) {
	for _, a := range e.addresses {
		out = append(out, a.String())
	}
	return out
}

// maxTraces bounds the questions to trace: it builds an agent for each node.
const (
	maxTraces     = 24
	maxTraceNodes = 64
)

// trace asks what becomes of packets of failing paths by the objects of the cluster: two paths of each check.
func (t *run) trace(ctx context.Context, p *plan) map[*path]string {
	if len(t.nodes) > maxTraceNodes {
		return nil
	}
	var asked []*path
	var questions []Question
	for _, c := range p.checks {
		failed := slices.DeleteFunc(c.failed(), func(p *path) bool { return p.ask == Question{} })
		for _, w := range failed[:min(2, len(failed))] {
			if len(asked) < maxTraces {
				asked, questions = append(asked, w), append(questions, w.ask)
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	answers, err := t.agents.Trace(ctx, questions)
	if err != nil {
		return nil // the other facts remain
	}
	out := map[*path]string{}
	for i, a := range answers[:min(len(answers), len(asked))] {
		out[asked[i]] = a
	}
	return out
}

// diagnosis turns outcomes and facts into causes.
type diagnosis struct {
	*world
	all     []*path
	foreign map[string][]string // by Service: endpoints that are no pods of the test
	traces  map[*path]string    // why packets are dropped by the objects of the cluster
}

// explain applies the rules, those with the most certain cause first. A later rule leaves paths alone that have a cause.
func (d *diagnosis) explain() {
	for _, rule := range []func(*path) string{
		d.podDown, d.nodeDown, d.goneEndpoint, d.denied, d.linkMTU, d.betweenNodes, d.hostLink, d.intoNode, d.consequence, d.service, d.atNodePort, d.names, d.differs,
	} {
		found := map[*path]string{}
		for _, p := range d.failing(unexplained) {
			if cause := rule(p); cause != "" {
				found[p] = cause
			}
		}
		for p, cause := range found { // after the rule has seen all
			p.causes = append(p.causes, cause)
		}
	}
}

func unexplained(p *path) bool { return len(p.causes) == 0 }

// failing returns the paths that failed and match; nil matches all.
func (d *diagnosis) failing(match func(*path) bool) (out []*path) {
	for _, p := range d.all {
		if p.reason != "" && (match == nil || match(p)) {
			out = append(out, p)
		}
	}
	return out
}

// works reports whether a path matches that was measured, and works.
func (d *diagnosis) works(match func(*path) bool) bool {
	return slices.ContainsFunc(d.all, func(p *path) bool { return p.reason == "" && p.skipped == "" && match(p) })
}

// direct reports whether a path leads to a test pod without a Service.
func (p *path) direct() bool {
	return p.pod != nil && (p.check.class == sameNode || p.check.class == otherNode || p.check.class == hostToPod)
}

// fullSize reports whether a path has packets of full size.
func (p *path) fullSize() bool {
	return p.probe.Kind == probe.MTU || p.probe.Bytes > 0 || p.probe.Kind == probe.TLS
}

// suspects returns the pods that may have no network.
func (d *diagnosis) suspects() (out []*endpoint) {
	for _, e := range d.endpoints {
		touches := touching(e)
		if e.role != roleHost && len(d.failing(touches)) > 1 && !d.works(touches) {
			out = append(out, e)
		}
	}
	return out
}

// touching matches the direct paths from and to a pod.
func touching(e *endpoint) func(*path) bool {
	return func(p *path) bool { return p.direct() && (p.pod == e || p.from == e) }
}

// podDown finds a pod that nobody reaches and that reaches nobody, on a node whose other pods work.
func (d *diagnosis) podDown(p *path) string {
	for _, e := range []*endpoint{p.from, p.pod} {
		if e == nil || e.role == roleHost {
			continue
		}
		touches := touching(e)
		others := d.works(func(p *path) bool {
			return p.direct() && !touches(p) && (p.from.node == e.node || p.node == e.node)
		})
		if !others || d.works(touches) || len(d.failing(touches)) < 2 {
			continue
		}
		for _, l := range e.links {
			if !l.Up {
				return fmt.Sprintf("%s has no network: its link %s is down; delete the pod, so that the CNI plugin makes it a new one", e.name, l.Name)
			}
		}
		return fmt.Sprintf("%s reaches nobody, nobody reaches it, and other pods of %s work: its interface in VPP is down or missing, or another program of the pod's network drops its packets: "+
			"kubectl contiv plan --node %s; kubectl contiv policy %s/%s", e.name, e.node, e.node, d.cfg.Namespace, e.name)
	}
	return ""
}

// nodeDown blames the trouble that a node's agent reports.
func (d *diagnosis) nodeDown(p *path) string {
	for _, name := range []string{p.from.node, p.node} {
		if m := d.node(name); len(m.trouble) > 0 {
			return fmt.Sprintf("%s: %s", name, m.trouble[0])
		}
	}
	if p.service != "" { // it leads to all nodes
		for _, m := range d.nodes {
			if len(m.trouble) > 0 {
				return fmt.Sprintf("%s, where endpoints of the Service are: %s", m.name, m.trouble[0])
			}
		}
	}
	return ""
}

// goneEndpoint finds Services with endpoints that do not exist.
func (d *diagnosis) goneEndpoint(p *path) string {
	if foreign := d.foreign[p.service]; p.service != "" && len(foreign) > 0 {
		return fmt.Sprintf("Service %s has an endpoint that does not exist: %s", p.service, foreign[0])
	}
	return ""
}

// denied blames what trace found: a policy, mostly.
func (d *diagnosis) denied(p *path) string {
	why := d.traces[p]
	if why == "" { // another path of the same check to the same place
		for other, text := range d.traces {
			if text != "" && other.check == p.check && other.ask.To == p.ask.To && other.from.role == p.from.role {
				why = text
			}
		}
	}
	if why == "" {
		return ""
	}
	return "as the cluster is configured, the packet does not pass: " + why
}

// linkMTU finds links that lose large packets only.
func (d *diagnosis) linkMTU(p *path) string {
	if !p.fullSize() {
		return ""
	}
	between := func(w *path) bool {
		return w.pod != nil && p.pod != nil && w.check.family == p.check.family && w.from.node == p.from.node && w.node == p.node && (w.check.class == p.check.class)
	}
	if p.pod == nil { // a Service: the endpoint is on any node
		between = func(w *path) bool { return w.pod != nil && w.from == p.from }
	}
	small := func(w *path) bool { return between(w) && !w.fullSize() && w.probe.Kind != probe.ICMP }
	measured := d.failing(func(w *path) bool { return between(w) && w.probe.Kind == probe.MTU && w.outcome.Passes > 0 })
	if len(measured) == 0 || !d.works(small) || p.pod != nil && len(d.failing(small)) > 0 {
		return ""
	}
	w := measured[0]
	have, passes := w.outcome.MTU, w.outcome.Passes
	if w.check.class == sameNode {
		return fmt.Sprintf("large packets are lost between pods of %s, small ones arrive: pods send up to %d bytes, and %d pass: an interface of VPP or a link cv-… has a smaller MTU: "+
			"kubectl contiv plan --node %s", p.from.node, have, passes, p.from.node)
	}
	overhead, tunnels := d.overhead()
	link := passes + overhead
	how := "the path between the nodes carries"
	if overhead > 0 {
		how = fmt.Sprintf("with the %d bytes of %s the links between the nodes carry", overhead, tunnels)
	}
	a, b := min(w.from.node, w.node), max(w.from.node, w.node)
	return fmt.Sprintf("large packets are lost between %s and %s, small ones arrive: pods have an MTU of %d bytes, and packets of up to %d pass: %s %d bytes, and --link-mtu is %d. "+
		"Raise the MTU of these links to %d, or set --link-mtu %d on all nodes and start pods again",
		a, b, have, passes, how, link, have+overhead, have+overhead, link)
}

// overhead returns what a packet between nodes has beside the pod's packet.
func (d *diagnosis) overhead() (bytes int, tunnels string) {
	for _, m := range d.nodes {
		if m.direct {
			return 0, ""
		}
	}
	for _, m := range d.nodes {
		if !ofFamily(m.addresses, 4).IsValid() {
			return 70, "VXLAN over IPv6"
		}
	}
	return 50, "VXLAN"
}

// betweenNodes finds pairs of nodes whose pods do not reach each other at all.
func (d *diagnosis) betweenNodes(p *path) string {
	if p.check.class != otherNode && (p.check.class != hostToPod || p.from.node == p.node) && p.check.class != nodeToNode {
		return ""
	}
	a, b := min(p.from.node, p.node), max(p.from.node, p.node)
	pair := func(of class) func(*path) bool {
		return func(w *path) bool {
			return w.check.class == of && w.check.family == p.check.family && (w.from.node == a && w.node == b || w.from.node == b && w.node == a)
		}
	}
	at := func(node string) string { return d.nodeAddress(node, d.tunnelFamily()).String() }
	nodes := func(w *path) bool {
		return w.check.class == nodeToNode && w.check.family == d.tunnelFamily() && pair(nodeToNode)(w) || w.check.class == nodeToNode && pair(nodeToNode)(w)
	}
	if len(d.failing(nodes)) > 0 && !d.works(nodes) {
		return fmt.Sprintf("%s and %s do not reach each other at %s and %s: a link between them is down, a route is missing, or a firewall drops all", a, b, at(a), at(b))
	}
	if d.works(pair(otherNode)) || len(d.failing(pair(otherNode))) == 0 {
		return ""
	}
	if line := d.difference(a, b); line != "" {
		return fmt.Sprintf("pods of %s and %s do not reach each other: %s", a, b, line)
	}
	if overhead, _ := d.overhead(); overhead == 0 {
		return fmt.Sprintf("pods of %s and %s do not reach each other, the nodes themselves do: the link of the nodes' VPPs (--node-uplink), or its addresses (annotation contiv-agent.io/uplink-addresses)", a, b)
	}
	return fmt.Sprintf("pods of %s and %s do not reach each other, the nodes themselves do, and their VPPs have tunnels and routes: something drops VXLAN (UDP port 4789) between %s and %s: "+
		"a firewall of a node (nft list ruleset), a security group of the cloud, or an InternalIP of a Node that is not the node's", a, b, at(a), at(b))
}

// tunnelFamily is that of the tunnels' outer packets.
func (d *diagnosis) tunnelFamily() int {
	for _, m := range d.nodes {
		if !ofFamily(m.addresses, 4).IsValid() {
			return 6
		}
	}
	return 4
}

// difference returns a line about the first differences of these nodes' VPPs; "": there are none.
func (d *diagnosis) difference(nodes ...string) string {
	for _, name := range nodes {
		if m := d.node(name); len(m.differences) > 0 {
			more := ""
			if n := len(m.differences); n > 1 {
				more = fmt.Sprintf(" and %s", counted(n-1, "more change"))
			}
			return fmt.Sprintf("VPP or the kernel of %s is not as its agent wants it, another program has changed it: %s%s (kubectl contiv plan --node %s; the agent repairs it at its next --recheck)",
				name, m.differences[0], more, name)
		}
	}
	return ""
}

// hostLink finds nodes whose own processes reach no pod, although the pods reach each other.
func (d *diagnosis) hostLink(p *path) string {
	if p.check.class != hostToPod && p.check.class != podToHost {
		return ""
	}
	for _, node := range []string{p.from.node, p.node} {
		own := func(w *path) bool {
			return w.check.class == hostToPod && w.check.family == p.check.family && w.from.node == node
		}
		if d.works(own) || len(d.failing(own)) == 0 {
			continue
		}
		why := fmt.Sprintf("processes of %s reach no pod, and pods reach each other: the host link is down or has lost its routes, so kubelet's probes fail as well: "+
			"ip link show contiv-host; ip route show dev contiv-host", node)
		if line := d.difference(node); line != "" {
			why += "; " + line
		}
		return why
	}
	return ""
}

// intoNode finds nodes that pods do not reach, although the node reaches pods.
func (d *diagnosis) intoNode(p *path) string {
	if p.check.class != podToHost {
		return ""
	}
	return fmt.Sprintf("pods do not reach %s at its own address, and %s reaches pods: a firewall of the node drops what comes from pods (nft list ruleset: chains with the hook input)", p.node, p.node)
}

// consequence gives a path by a Service, or to DNS, the causes of the direct paths from the same pod to the Service's endpoints.
func (d *diagnosis) consequence(p *path) string {
	if p.service == "" {
		return ""
	}
	to := func(w *path) bool { return w.pod.role == rolePod }
	if d.dns != nil && p.service == d.dns.name {
		return ""
	}
	for _, w := range d.failing(func(w *path) bool { return w.direct() && w.from == p.from && !w.fullSize() && to(w) }) {
		if len(w.causes) > 0 {
			return fmt.Sprintf("%s fails as well: %s", w, w.causes[0])
		}
	}
	// The client's VPP translates, or that of the node whose port it is.
	for _, w := range d.failing(func(w *path) bool { return w.direct() && !w.fullSize() && w.from.node == p.node && to(w) }) {
		if len(w.causes) > 0 {
			return fmt.Sprintf("%s fails as well: %s", w, w.causes[0])
		}
	}
	return ""
}

// service blames the translation of a cluster IP.
func (d *diagnosis) service(p *path) string {
	if p.check.class != toClusterIP && p.check.class != toAPIServer && p.check.class != toEmpty {
		return ""
	}
	namespace := d.cfg.Namespace
	if p.check.class == toAPIServer {
		namespace = "default"
	}
	name := namespace + "/" + p.service
	if why := d.ofService(p.from.node, name); why != "" {
		return why
	}
	if line := d.difference(p.from.node); line != "" {
		return line
	}
	if p.outcome.Symptom == "" {
		return fmt.Sprintf("the connections are answered, but not as the Service asks: kubectl contiv status --node %s %s shows whether a part of it is not served", p.from.node, name)
	}
	if n := len(p.outcome.Answers); n > 0 {
		return fmt.Sprintf("some endpoints of Service %s do not answer, all of them do directly: answers get lost, or sessions are cut: kubectl contiv status --node %s --history %s", p.service, p.from.node, name)
	}
	if p.check.class == toAPIServer {
		return "the API server does not answer pods at the endpoints of Service default/kubernetes: a firewall of its machine, or an address that pods cannot reach (kube-apiserver --advertise-address): " +
			"kubectl get endpointslices -l kubernetes.io/service-name=kubernetes; kubectl contiv status default/kubernetes"
	}
	return fmt.Sprintf("VPP of %s does not translate the Service's address, its endpoints answer directly: kubectl contiv status --node %s %s", p.from.node, p.from.node, name)
}

// ofService returns what the agent of a node reports of a Service; "": it is configured.
func (d *diagnosis) ofService(node, name string) string {
	m := d.node(node)
	if m.status == nil {
		return ""
	}
	for _, s := range m.status.Services {
		if s.Name == name {
			if s.State == "CONFIGURED" && len(s.Reasons) == 0 {
				return ""
			}
			return fmt.Sprintf("the agent of %s reports Service %s as %s: %s", node, name, s.State, strings.Join(s.Reasons, "; "))
		}
	}
	return fmt.Sprintf("the agent of %s does not know Service %s: kubectl contiv status --node %s", node, name, node)
}

// atNodePort blames what keeps packets to a node port from VPP.
func (d *diagnosis) atNodePort(p *path) string {
	if p.check.class != toNodePort {
		return ""
	}
	for _, node := range []string{p.node, p.from.node} {
		if why := d.ofService(node, d.cfg.Namespace+"/"+p.service); why != "" {
			return why
		}
	}
	if line := d.difference(p.node); line != "" {
		return line
	}
	at := p.probe.To
	if strings.Contains(p.reason, "address is not kept") {
		return fmt.Sprintf("another program translates the client's address at %s: kube-proxy beside the agent, or a masquerade rule for the pods' network: nft list ruleset", p.node)
	}
	return fmt.Sprintf("the node port is not answered at %s, and the Service's cluster IP is: a firewall drops the port before VPP gets the packets (nft list ruleset on %s, a security group of the cloud), "+
		"or --node-port-addresses leaves the address out", at, p.node)
}

// names blames DNS.
func (d *diagnosis) names(p *path) string {
	if p.check.class != lookup && p.check.class != askServer {
		return ""
	}
	if len(d.dns.servers) == 0 {
		return fmt.Sprintf("Service %s has no ready endpoint: kubectl get pods -n %s -o wide", d.dns.name, strings.Split(d.dns.name, "/")[0])
	}
	direct := func(w *path) bool { return w.check.class == askServer }
	switch {
	case p.outcome.Symptom != probe.Silence && p.outcome.Symptom != probe.Other && p.outcome.Symptom != "":
		return ""
	case p.outcome.Symptom == "":
		return fmt.Sprintf("DNS answers, and does not know the Service: does it follow the API server? kubectl logs -n %s -l k8s-app=kube-dns", strings.Split(d.dns.name, "/")[0])
	case p.check.class == lookup && d.works(direct) && len(d.failing(direct)) == 0:
		return fmt.Sprintf("each DNS server answers directly, not by its Service: kubectl contiv status --node %s %s", p.from.node, d.dns.name)
	}
	return fmt.Sprintf("no DNS server answers, and pods reach each other: DNS itself does not answer (kubectl logs -n %s -l k8s-app=kube-dns), or its answers do not pass", strings.Split(d.dns.name, "/")[0])
}

// differs is for what no other rule knows.
func (d *diagnosis) differs(p *path) string { return d.difference(p.from.node, p.node) }
