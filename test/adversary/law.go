package adversary

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Law judges arrivals.
type Law struct {
	now    *policy.Cluster
	before *policy.Cluster // while a change is under way; nil: none is
	addrs  map[string]*party
	ranges []netip.Prefix          // of pods, by node
	masks  map[netip.AddrPort]bool // frontends that hide their clients from endpoints: node ports, and addresses of load balancers
	begun  map[flow]*conn          // by the first packet that arrived and was allowed
	dials  map[attempt]*conn       // the same, by the address that was dialled
	seen   map[attempt]*conn       // the same, by what the server has to send to
	fronts map[flow]netip.AddrPort // those of them that were allowed by the frontend that was dialled
	sent   map[attempt]bool        // all that were sent from own addresses, as they were last seen
	Counts
}

// conn is a connection that was opened.
type conn struct {
	first  policy.Flow // behind any Service
	client string
	node   string // the server's
	// spoke: when the client's last packet came to the server's node, the policies allowed the connection.
	spoke      bool
	translated bool // a Service was dialled
}

// attempt is a packet with its own source, arrived or not.
type attempt struct {
	sender       string
	dst          netip.Addr
	proto        model.Protocol
	cport, sport uint16
}

// Counts is what was judged.
type Counts struct {
	Packets, Arrived, Allowed, Answers, Checks, Sequences int
	Excused                                               map[string]int
	Known                                                 map[Class]int // breaches of classes that were left out
}

// Add sums up.
func (c *Counts) Add(o Counts) {
	c.Packets, c.Arrived, c.Allowed, c.Answers = c.Packets+o.Packets, c.Arrived+o.Arrived, c.Allowed+o.Allowed, c.Answers+o.Answers
	c.Checks, c.Sequences = c.Checks+o.Checks, c.Sequences+o.Sequences
	for k, n := range o.Known {
		if c.Known == nil {
			c.Known = map[Class]int{}
		}
		c.Known[k] += n
	}
	for k, n := range o.Excused {
		c.excuse(k, n)
	}
}

func (c *Counts) excuse(why string, n int) {
	if c.Excused == nil {
		c.Excused = map[string]int{}
	}
	c.Excused[why] += n
}

// flow is who opened a connection to whom. ICMP has no ports.
type flow struct {
	client, server string
	proto          model.Protocol
	cport, sport   uint16
}

// NewLaw is a law without objects.
func NewLaw() *Law {
	return &Law{begun: map[flow]*conn{}, dials: map[attempt]*conn{}, seen: map[attempt]*conn{}, fronts: map[flow]netip.AddrPort{}, sent: map[attempt]bool{}}
}

// Become makes these the objects of now.
func (l *Law) Become(objects []policy.Object) error {
	c, err := policy.Read(objects)
	if err != nil {
		return err
	}
	l.before, l.now = l.now, c
	l.addrs, l.masks, l.ranges = map[string]*party{}, masks(objects), nil
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			for _, text := range n.Spec.PodCIDRs {
				l.ranges = append(l.ranges, netip.MustParsePrefix(text))
			}
		}
	}
	pods, nodes, outside := parties(objects)
	for _, list := range [][]party{pods, nodes, outside} {
		for i := range list {
			l.addrs[list[i].name] = &list[i]
		}
	}
	return nil
}

// Tolerate tells whether a breach is none, or of one of the known classes, which are counted.
func (l *Law) Tolerate(b Breach, known map[Class]bool) bool {
	if known[b.Class] {
		if l.Known == nil {
			l.Known = map[Class]int{}
		}
		l.Known[b.Class]++
	}
	return b.None() || known[b.Class]
}

// None tells that nothing is forbidden.
func (b Breach) None() bool { return b.Class == "" }

// masks are the frontends that may hide their clients.
func masks(objects []policy.Object) map[netip.AddrPort]bool {
	_, nodes, _ := parties(objects)
	out := map[netip.AddrPort]bool{}
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		for _, p := range svc.Spec.Ports {
			for _, lb := range svc.Status.LoadBalancer.Ingress {
				out[netip.AddrPortFrom(netip.MustParseAddr(lb.IP), uint16(p.Port))] = true
			}
			for _, n := range nodes {
				for _, a := range n.addrs {
					out[netip.AddrPortFrom(a, uint16(p.NodePort))] = p.NodePort != 0
				}
			}
		}
	}
	return out
}

// Settled ends a change: what was before does not count any more.
func (l *Law) Settled() { l.before = nil }

// Breach is an arrival that the law forbids. The zero value is none.
type Breach struct {
	Class Class
	Text  string
}

// Class is what is particular about a breach: the first of these that holds.
type Class string

// The classes.
const (
	Forged  Class = "a forged source"
	SCTP    Class = "SCTP"
	Hidden  Class = "a client behind another address"
	Revoked Class = "a connection that was allowed once"
	Open    Class = "an open door"
	Lost    Class = "an allowed connection that fails"
)

// classify names what is particular about an arrival.
func (l *Law) classify(src netip.Addr, a *trace.Arrival) Class {
	there, back := flowsOf(a)
	switch {
	case a.Sent.Src != src:
		return Forged
	case a.Sent.Proto == model.SCTP:
		return SCTP
	case a.Sent.Src != a.Packet.Src && l.begun[back] == nil:
		return Hidden
	case l.begun[there] != nil || l.begun[back] != nil:
		return Revoked
	}
	return Open
}

// Judge says why an arrival breaks the law. The sender is the name it has in questions.
func (l *Law) Judge(from string, a *trace.Arrival) Breach {
	l.Packets++
	who := l.addrs[from]
	if who == nil {
		return Breach{}
	}
	if c := l.dials[dialled(a)]; c != nil && a.Packet.Dst == c.first.Dst && (a.At != "" || strings.HasPrefix(a.Lost, c.node+":")) {
		c.spoke = l.now.JudgePods(&c.first).Allowed
	}
	if src, ok := who.of(a.Packet.Dst.Is4()); ok && src == a.Sent.Src && a.Packet.Dst.IsValid() {
		l.sent[attempt{a.Sender, a.Packet.Dst, a.Sent.Proto, port(&a.Sent, true), port(&a.Packet, false)}] = true
	}
	if a.At == "" || a.At == a.Sender || a.Packet.IsICMPError() {
		return Breach{}
	}
	l.Arrived++
	src, ok := who.of(a.Packet.Dst.Is4())
	if !ok {
		return Breach{Open, fmt.Sprintf("%s has no address of that family", from)}
	}
	why := ""
	for _, c := range []*policy.Cluster{l.now, l.before} {
		if c == nil {
			continue
		}
		allowed, reason := l.allows(c, who, src, a)
		if allowed {
			return Breach{}
		}
		if why == "" {
			why = reason
		}
	}
	if !strings.HasPrefix(a.At, "pod:") && slices.ContainsFunc(l.ranges, func(p netip.Prefix) bool { return p.Contains(a.Packet.Dst) }) {
		l.excuse("left the cluster for an address of pods", 1)
		return Breach{}
	}
	return Breach{l.classify(src, a), fmt.Sprintf("%s sent %s, and %s got %s: %s", from, &a.Sent, a.At, &a.Packet, why)}
}

// allows is the verdict of one set of policies about an arrival, excuses included; reason says why not.
func (l *Law) allows(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) (ok bool, reason string) {
	there, back := flowsOf(a)
	if ok, reason = l.opens(c, who, src, a); ok {
		l.Allowed++
		l.begin(there, who, src, a)
		delete(l.fronts, there)
		return true, ""
	}
	if l.answers(c, src, a, back) {
		l.Answers++
		if l.begun[back] == nil {
			l.excuse("answer without a request: "+a.Sent.Proto.String(), 1)
		}
		return true, ""
	}
	if l.masked(c, who, src, a) {
		l.begin(there, who, src, a)
		l.fronts[there] = netip.AddrPortFrom(a.Sent.Dst, a.Sent.DstPort)
		return true, ""
	}
	if l.invited(c, src, a) {
		l.excuse("the receiver's own attempt: "+a.Sent.Proto.String(), 1)
		return true, ""
	}
	if why := l.goesOn(c, a); why != "" {
		l.excuse(why, 1)
		return true, ""
	}
	return false, reason
}

// begin remembers an opened connection.
func (l *Law) begin(f flow, who *party, src netip.Addr, a *trace.Arrival) {
	c := &conn{client: a.Sender, node: a.AtNode, first: flowOf(who.node, src, a.Packet.Dst, &a.Packet), spoke: true, translated: a.Sent.Dst != a.Packet.Dst}
	c.first.SrcPort = a.Sent.SrcPort
	l.begun[f], l.dials[dialled(a)] = c, c
	l.seen[attempt{a.At, a.Packet.Src, a.Sent.Proto, port(&a.Packet, false), port(&a.Packet, true)}] = c
}

// dialled names a packet by what its sender dialled.
func dialled(a *trace.Arrival) attempt {
	return attempt{a.Sender, a.Sent.Dst, a.Sent.Proto, port(&a.Sent, true), port(&a.Sent, false)}
}

// goesOn says why a revoked connection may go on as ADR 12 has it; "": it may not.
func (l *Law) goesOn(c *policy.Cluster, a *trace.Arrival) string {
	there, back := flowsOf(a)
	conn := l.begun[back]
	if conn == nil { // the client is hidden, and NAT may have forgotten it
		conn = l.seen[dialled(a)]
	}
	if conn != nil { // the server speaks
		switch {
		case conn.client != a.At && strings.HasPrefix(a.At, "pod:"):
			return "revoked, and another pod has the client's address"
		case conn.spoke:
			return "revoked, and the client is silent since: " + back.proto.String()
		case conn.translated && back.proto == model.UDP:
			return "revoked UDP by a Service"
		}
	}
	for _, f := range []flow{there, back} {
		if conn := l.begun[f]; conn != nil && f.sport >= clientPorts {
			first := conn.first
			first.Src, first.Dst, first.SrcPort, first.DstPort = first.Dst, first.Src, first.DstPort, first.SrcPort
			if c.JudgeEgress(&first).Allowed {
				return "revoked, to a port of 32768 or more: " + f.proto.String()
			}
		}
	}
	return ""
}

// clientPorts is the first port that the agent takes for a client's.
const clientPorts = 32768

// flowsOf are the connection that a packet would open, and the one that it would be an answer of.
func flowsOf(a *trace.Arrival) (there, back flow) {
	there = flow{a.Sender, a.At, a.Sent.Proto, port(&a.Sent, true), port(&a.Packet, false)}
	back = flow{a.At, a.Sender, a.Sent.Proto, port(&a.Packet, false), port(&a.Sent, true)}
	return there, back
}

// port is the source or the destination port of a packet; 0 for ICMP: access lists do not know identifiers.
func port(p *packet.Packet, source bool) uint16 {
	if source {
		return p.SrcPort
	}
	return p.DstPort
}

// opens tells whether whoever sent a packet may open a connection to whoever got it.
func (l *Law) opens(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) (bool, string) {
	f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
	f.SrcPort = a.Sent.SrcPort
	v := c.JudgePods(&f)
	if v.Allowed || strings.HasPrefix(who.name, "pod:") || a.Packet.Src == src {
		return v.Allowed, v.Why
	}
	hidden := c.JudgeHidden(&f, a.Packet.Src)
	return hidden.Allowed, hidden.Why
}

// answers tells whether a packet is one that belongs to a connection that whoever got it may open.
func (l *Law) answers(c *policy.Cluster, src netip.Addr, a *trace.Arrival, of flow) bool {
	if opening(&a.Sent) {
		return false
	}
	back := a.Packet.Reply()
	f := flowOf(a.AtNode, a.Packet.Dst, src, &back)
	f.DstPort = a.Sent.SrcPort
	if a.Sent.IsICMP() {
		f.Type = 8
		if src.Is6() {
			f.Type = 128
		}
	}
	if c.JudgePods(&f).Allowed {
		return true
	}
	if front, dialled := l.fronts[of]; dialled {
		hidden, egress := f, f
		hidden.Src, egress.Dst, egress.DstPort = a.Sent.Dst, front.Addr(), front.Port()
		return c.JudgeIngress(&hidden).Allowed && (c.JudgeEgress(&f).Allowed || c.JudgeEgress(&egress).Allowed)
	}
	return !strings.HasPrefix(a.At, "pod:") && c.JudgeHidden(&f, a.Sent.Dst).Allowed
}

// masked tells whether a pod dialled a node port or a load balancer's address, and may do that: its own egress allows the endpoint or, as
// another node may translate, the frontend, and the endpoint's ingress allows the address that the client has there.
func (l *Law) masked(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) bool {
	front := netip.AddrPortFrom(a.Sent.Dst, a.Sent.DstPort)
	if !l.masks[front] || a.Sent.Src != src {
		return false
	}
	f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
	f.SrcPort = a.Sent.SrcPort
	dialled := flowOf(who.node, src, front.Addr(), &a.Sent)
	hidden := f
	hidden.Src = a.Packet.Src
	switch {
	case !c.JudgeIngress(&hidden).Allowed || !c.JudgeEgress(&f).Allowed && !c.JudgeEgress(&dialled).Allowed:
		return false
	case !c.JudgeEgress(&f).Allowed:
		l.excuse("egress to a frontend, not to its endpoint", 1)
	default:
		l.excuse("a client that a frontend hides", 1)
	}
	return true
}

// invited tells whether whoever got a packet had sent one the other way, from and to the same ports, which its own policies allow.
func (l *Law) invited(c *policy.Cluster, src netip.Addr, a *trace.Arrival) bool {
	if !l.sent[attempt{a.At, src, a.Sent.Proto, port(&a.Packet, false), port(&a.Sent, true)}] {
		return false
	}
	back := a.Packet.Reply()
	f := flowOf(a.AtNode, a.Packet.Dst, src, &back)
	f.DstPort = a.Sent.SrcPort
	return c.JudgeEgress(&f).Allowed
}

// opening tells whether a packet can be no answer.
func opening(p *packet.Packet) bool {
	switch p.Proto {
	case model.TCP:
		return p.TCPFlags&packet.SYN != 0 && p.TCPFlags&packet.ACK == 0
	case model.SCTP:
		return p.Chunk == packet.Init
	}
	return p.IsEchoRequest()
}

// flowOf is what a packet is to the oracle of policies.
func flowOf(node string, src, dst netip.Addr, p *packet.Packet) policy.Flow {
	f := policy.Flow{Node: node, Src: src, Dst: dst, Proto: policy.Protocol(p.Proto)}
	if p.HasPorts() {
		f.SrcPort, f.DstPort = p.SrcPort, p.DstPort
		return f
	}
	f.Type, f.Code = p.ICMPType, p.ICMPCode
	return f
}

// Check compares the answer to a question about a new connection with the law: each endpoint that is chosen gets the packet exactly if the
// policies allow it. Where no endpoint is named, some endpoint must be one that they deny.
func (l *Law) Check(s *trace.Step, answer *trace.Answer, endpoints []netip.AddrPort) Breach {
	who := l.addrs[s.From]
	l.Checks++
	allowed := 0
	for _, e := range endpoints {
		src, _ := who.of(e.Addr().Is4())
		if src == e.Addr() { // it has the address of hidden clients there, and is judged as they are
			continue
		}
		f := newConnection(who.node, src, e, s)
		v := l.now.JudgePods(&f)
		if v.Allowed {
			allowed++
		}
		for _, o := range answer.Outcomes {
			if (o.Address == e.String() || o.Address == e.Addr().String()) && (o.Verdict == trace.Delivered) != v.Allowed {
				class := Open
				if v.Allowed {
					class = Lost
				}
				return Breach{class, fmt.Sprintf("%s -> %s %s: %s %s (%s); %s", s.From, s.To, s.Protocol, e, o.Verdict, o.Reason, v.Why)}
			}
		}
	}
	if len(answer.Outcomes) == 0 && allowed > 0 && allowed == len(endpoints) {
		return Breach{Lost, fmt.Sprintf("%s -> %s %s: %s (%s); all %d endpoints are allowed", s.From, s.To, s.Protocol, answer.Verdict, answer.Reason, allowed)}
	}
	return Breach{}
}

// newConnection is the first packet of a step as it arrives at an endpoint.
func newConnection(node string, src netip.Addr, e netip.AddrPort, s *trace.Step) policy.Flow {
	f := policy.Flow{Node: node, Src: src, Dst: e.Addr(), SrcPort: s.SourcePort, DstPort: e.Port(), Proto: policy.TCP}
	switch s.Protocol {
	case "UDP":
		f.Proto = policy.UDP
	case "ICMP":
		f.Proto, f.Type, f.SrcPort, f.DstPort = policy.ICMP, 8, 0, 0
		if src.Is6() {
			f.Proto, f.Type = policy.ICMPv6, 128
		}
	}
	return f
}
