package policy_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	policyplugin "github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed/show"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
)

// agentWorlds is few: each packet is parsed, translated and routed by a simulated VPP on every node of its way.
const (
	agentWorlds = 60
	agentFlows  = 60 // of each cluster
)

// TestAgents grows random clusters of whole agents on simulated VPPs and compares what happens to packets with the
// specifications: those sent to pods, and those sent to services. In the end restarted agents write nothing, and every VPP is
// as if it had been given the final objects only.
func TestAgents(t *testing.T) { grow(t, agentWorlds, growAgents) }

func growAgents(t *testing.T, seed uint64) (flows int) {
	w := generate.NewWorld(seed, generate.AllKinds())
	cfg := trace.Config{Seed: seed, Agent: agent.Config{Policies: config.Policies{PostDNAT: seed%3 == 0, Config: policyplugin.Config{TrustNodeAddresses: seed%3 == 1}}}}
	cluster := trace.NewCluster(cfg)
	defer cluster.Close()
	changes := allOf(w.Objects())
	for step := 0; ; step++ {
		list, err := hear.All(changes)
		if err == nil {
			err = cluster.Apply(context.Background(), list)
		}
		if err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
			return flows
		}
		n, d := askAgents(cluster, w, cfg.Agent)
		if flows += n; d != nil {
			t.Errorf("seed %d step %d: %s", seed, step, d)
			explain(t, w.Objects(), func(objects []policy.Object) string { return agentsDiffer(objects, cfg, *d) })
			return flows
		}
		if step == stepsPerWorld {
			oracle.RestartWritesNothing(t, seed, cluster)
			likeFresh(t, seed, cfg, w, cluster)
			return flows
		}
		changes = w.Step()
	}
}

// dispute is a question on which agents and specifications differ.
type dispute struct {
	question trace.Question
	flow     policy.Flow
	vip      *corev1.Service // the question is about a service
	text     string
}

func (d *dispute) String() string { return d.text }

// askAgents asks some questions about a cluster, and returns the first on which there is no agreement.
func askAgents(cluster *trace.Cluster, w *generate.World, cfg agent.Config) (asked int, _ *dispute) {
	c, err := policy.Read(w.Objects())
	if err != nil {
		return 0, &dispute{text: err.Error()}
	}
	f := factsOf(w.Objects())
	for _, flow := range w.Sample(w.Flows(1), agentFlows) {
		d := dispute{flow: flow}
		if flow.Proto == policy.SCTP && flow.Dst.Is4() {
			continue // nat44 replaces the source of every SCTP packet by the node's address: the sender is unknown
		}
		if d.question, err = f.question(flow); err != nil {
			continue
		}
		if !cfg.Policies.PostDNAT && !cfg.Policies.TrustNodeAddresses && f.namesPeer(flow) {
			continue // only a rule without sources lets it in: TestRulesAboutPeers of renderer/acl
		}
		asked++
		if d.text = answered(cluster, c, d.question, flow); d.text != "" {
			return asked, &d
		}
	}
	if cfg.Policies.PostDNAT {
		return asked, nil // nobody translates yet
	}
	for _, d := range f.serviceQuestions(w.Objects()) {
		if strings.HasPrefix(d.question.From, "node:") && !cfg.Policies.TrustNodeAddresses {
			continue // its endpoint may be another node's
		}
		asked++
		if d.text = f.serves(cluster, c, w.Objects(), d); d.text != "" {
			return asked, &d
		}
	}
	return asked, nil
}

// namesPeer reports whether a flow to a pod comes from an address of another node, which nat44 there gives to pods as well.
func (f *facts) namesPeer(flow policy.Flow) bool {
	at := f.at[flow.Src]
	return flow.Src.Is4() && slices.Contains(f.own[at], flow.Src) && f.pods[flow.Dst] != "" && f.at[flow.Dst] != at
}

// question asks about a flow; an error if there is no way to put it.
func (f *facts) question(flow policy.Flow) (trace.Question, error) {
	q := trace.Question{From: "external:" + flow.Src.String() + "@" + flow.Node, Protocol: flow.Proto.String()}
	switch {
	case flow.Src == flow.Dst:
		return q, fmt.Errorf("it stays in the pod")
	case f.pods[flow.Src] != "":
		q.From = "pod:" + f.pods[flow.Src][len("pod-"):]
	case f.at[flow.Src] != "":
		q.From = "node:" + f.at[flow.Src]
	}
	if f.pods[flow.Src] == "" && f.at[flow.Src] != "" && flow.Src != f.own[flow.Node][0] && flow.Src.Is4() {
		return q, fmt.Errorf("a node sends from its first address")
	}
	q.To = netip.AddrPortFrom(flow.Dst, flow.DstPort).String()
	switch flow.Proto {
	case policy.ICMP, policy.ICMPv6:
		if flow.Type != 8 && flow.Type != 128 || flow.Code != 0 {
			return q, fmt.Errorf("only pings are asked about")
		}
		q.Protocol, q.To = "ICMP", flow.Dst.String()
	}
	return q, nil
}

// answered compares the answer to a question with the specifications.
func answered(cluster *trace.Cluster, c *policy.Cluster, q trace.Question, flow policy.Flow) string {
	want, a := c.Judge(&flow), cluster.Answer(q)
	if a.Error != "" {
		return cannotAsk + fmt.Sprintf("%+v: %s", q, a.Error)
	}
	got := a.Verdict == trace.Delivered
	if got == want.Allowed {
		return ""
	}
	if !got && flow.Proto == policy.SCTP && strings.Contains(a.Reason, "SCTP, which nothing here tracks") {
		return ""
	}
	if flow.Proto == policy.UDP && flow.Undeclared() && strings.HasPrefix(a.Reason, "the reply is lost") {
		return ""
	}
	return fmt.Sprintf("%v: %s (%s), should be allowed %v: %s", flow, a.Verdict, a.Reason, want.Allowed, want.Why)
}

const cannotAsk = "cannot ask "

// serviceQuestions are the packets of pods, nodes and an outside client to every Service.
func (f *facts) serviceQuestions(objects []policy.Object) []dispute {
	var out []dispute
	for _, o := range objects {
		s, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		port := s.Spec.Ports[0]
		for _, o := range objects {
			var from string
			var src netip.Addr
			at := ""
			switch o := o.(type) {
			case *corev1.Pod:
				for a, iface := range f.pods {
					if iface == "pod-"+o.Namespace+"/"+o.Name && a.Is4() {
						from, src, at = "pod:"+o.Namespace+"/"+o.Name, a, o.Spec.NodeName
					}
				}
			case *corev1.Node:
				from, src, at = "node:"+o.Name, f.own[o.Name][0], o.Name
			}
			if from == "" {
				continue
			}
			to := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), uint16(port.Port))
			out = append(out, dispute{
				question: trace.Question{From: from, To: to.String(), Protocol: string(port.Protocol)}, flow: policy.Flow{Node: at, Src: src}, vip: s,
			})
			if _, isNode := o.(*corev1.Node); isNode && port.NodePort != 0 {
				to := netip.AddrPortFrom(src, uint16(port.NodePort))
				out = append(out, dispute{
					question: trace.Question{From: "external:198.51.100.7@" + at, To: to.String(), Protocol: string(port.Protocol)},
					flow:     policy.Flow{Node: at, Src: netip.MustParseAddr("198.51.100.7")}, vip: s,
				})
			}
		}
	}
	return out
}

// serves compares what each backend of a service gets with the specifications: it is reached exactly if they allow the packet
// it would get.
func (f *facts) serves(cluster *trace.Cluster, c *policy.Cluster, objects []policy.Object, d dispute) string {
	a := cluster.Answer(d.question)
	if a.Error != "" {
		return fmt.Sprintf("%+v: %s", d.question, a.Error)
	}
	met := d.flow // by a host endpoint, before it is translated
	if to, err := netip.ParseAddrPort(d.question.To); err == nil {
		met.Dst, met.DstPort, met.SrcPort = to.Addr(), to.Port(), 40000
	}
	local := d.flow.Src == netip.MustParseAddr("198.51.100.7") && d.vip.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	for _, backend := range backendsOf(objects, d.vip) {
		flow := d.flow
		flow.Dst, flow.DstPort, flow.SrcPort = backend.Addr(), backend.Port(), 40000
		flow.Proto = policy.TCP
		if d.vip.Spec.Ports[0].Protocol == corev1.ProtocolUDP {
			flow.Proto = policy.UDP
		}
		met.Proto = flow.Proto
		from := c.JudgeUplinks(&met, true)
		if f.at[met.Src] != "" { // from inside
			from.Allowed = true
		}
		if local && f.at[flow.Dst] != flow.Node {
			continue
		}
		got, why := false, "no such outcome"
		hidden := false
		for _, o := range a.Outcomes {
			if o.Address == backend.String() {
				got, why = o.Verdict == trace.Delivered, o.Reason
				if s := netip.MustParseAddr(o.Source); s != flow.Src {
					flow.Src, hidden = s, f.at[flow.Dst] == flow.Node
				}
			}
		}
		if flow.Src == flow.Dst {
			continue // what it sees of itself is one of the node's addresses, too
		}
		want := c.JudgePods(&flow)
		if flow.Src != d.flow.Src { // the port it dials from is another one, too
			flow.SrcPort++
			if c.JudgePods(&flow).Allowed != want.Allowed {
				continue
			}
		}
		if want.Allowed && !from.Allowed {
			want = from
		}
		if hidden && got && from.Allowed {
			continue // the pod's own way to itself has the same address
		}
		if !got && strings.Contains(why, "an address that NAT gives to others") && f.at[d.flow.Src] == f.at[flow.Dst] && f.pods[d.flow.Src] == "" {
			continue // a service is dialled from the node's address, which reaches no pod of the node that has policies
		}
		if got != want.Allowed {
			return fmt.Sprintf("%+v: backend %v reached %v (%s), should be %v: %s", d.question, flow, got, why, want.Allowed, want.Why)
		}
	}
	return ""
}

// backendsOf are the IPv4 endpoints of a service.
func backendsOf(objects []policy.Object, s *corev1.Service) []netip.AddrPort {
	var out []netip.AddrPort
	for _, o := range objects {
		e, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || e.AddressType != discoveryv1.AddressTypeIPv4 || e.Namespace != s.Namespace || e.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, ep := range e.Endpoints {
			if len(ep.Addresses) == 0 || len(e.Ports) == 0 || e.Ports[0].Port == nil {
				continue
			}
			out = append(out, netip.AddrPortFrom(netip.MustParseAddr(ep.Addresses[0]), uint16(*e.Ports[0].Port)))
		}
	}
	return slices.Compact(out)
}

// agentsDiffer evaluates a question again in a cluster that starts with all objects.
func agentsDiffer(objects []policy.Object, cfg trace.Config, d dispute) string {
	list, err := hear.All(allOf(objects))
	if err != nil {
		return ""
	}
	cluster := trace.NewCluster(cfg)
	defer cluster.Close()
	c, err := policy.Read(objects)
	if err != nil || cluster.Apply(context.Background(), list) != nil {
		return ""
	}
	f := factsOf(objects)
	if !f.whole(d.flow) {
		return ""
	}
	if from := cluster.Answer(trace.Question{From: d.question.From, To: "192.0.2.1:1", Protocol: "TCP"}); from.Error != "" {
		return "" // the sender does not exist
	}
	if d.vip != nil {
		if !slices.ContainsFunc(objects, func(o policy.Object) bool { return policy.KeyOf(o) == policy.KeyOf(d.vip) }) {
			return ""
		}
		return f.serves(cluster, c, objects, d)
	}
	if q, err := f.question(d.flow); err != nil || q != d.question {
		return ""
	}
	return answered(cluster, c, d.question, d.flow)
}

// likeFresh compares every VPP with that of a cluster that was given the final objects only.
func likeFresh(t *testing.T, seed uint64, cfg trace.Config, w *generate.World, grown *trace.Cluster) {
	fresh := trace.NewCluster(cfg)
	defer fresh.Close()
	list, err := hear.All(allOf(w.Objects()))
	if err == nil {
		err = fresh.Apply(context.Background(), list)
	}
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return
	}
	for _, name := range grown.Nodes() {
		if diff := cmp.Diff(fresh.Sim(name).Dump(), show.WithoutDrained(grown.Sim(name).Dump())); diff != "" {
			t.Errorf("seed %d: VPP of %s depends on the way there (-fresh +grown):\n%s", seed, name, diff)
		}
	}
}
