package trace

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/choices"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// Answer returns the fate of the first packet of a connection, for every backend that the load balancer may choose.
func (c *Cluster) Answer(q Question) Answer {
	a := Answer{From: q.From, To: q.To, Protocol: q.Protocol}
	from, p, err := c.resolve(q)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	s := sending{from: from, packet: p}
	c.fillAnswer(&a, &s, func() []attempt { return c.explore(&s) })
	return a
}

// attempt is one run, with one choice of the load balancers.
type attempt struct {
	verdict Verdict
	reason  string
	outcome *Outcome // nil: no backend was chosen
	allowed []string // the policy rules that let it pass
	path    []hops.Hop
}

// explore runs the packet once for every sequence of choices that the load balancers on its path may make.
func (c *Cluster) explore(s *sending) []attempt {
	var runs []attempt
	script := []int{}
	for {
		var options []int
		choose := func(n int) int {
			options = append(options, n)
			if k := len(options) - 1; k < len(script) {
				return script[k]
			}
			return 0
		}
		marks, arrived := c.beginTrace(choose), maps.Clone(c.arrived)
		runs = append(runs, c.attempt(s, &options))
		c.rollback(marks)
		c.arrived = arrived
		script = choices.Next(script, options)
		if script == nil {
			return runs
		}
	}
}

// attempt sends the packet and its reply once; with oneWay only the packet. An answer, or a packet with a forged source,
// gets no reply.
func (c *Cluster) attempt(s *sending, options *[]int) attempt {
	from, p := s.from, s.packet
	j := c.travel(from, p, s.parts)
	switch {
	case j.packet.IsICMPError() && j.lost == "":
		if !j.end.sameParty(from) {
			return c.failed(j, options, Dropped, fmt.Sprintf("%s goes to %s, not to the client", icmpText(j.packet), j.end))
		}
		return c.failed(j, options, Rejected, icmpText(j.packet))
	case j.denied && j.packet.Src != p.Src:
		return c.failed(j, options, Dropped, fmt.Sprintf("%s: the client is hidden behind %s", j.lost, j.packet.Src))
	case j.lost != "":
		return c.failed(j, options, Dropped, j.lost)
	case !j.end.outside && j.packet.Src == j.packet.Dst && p.Src != p.Dst:
		// Each kernel drops such a packet as martian, unless it came over the loopback interface.
		return c.failed(j, options, Dropped, fmt.Sprintf("%s gets a packet with its own source address, and drops it", j.end))
	}
	if reason := c.refuses(j); reason != "" {
		return c.failed(j, options, Rejected, reason)
	}
	o := c.outcome(j)
	if s.oneWay || p.Src != from.addr || isAnswer(&p) {
		o.Verdict, o.Reason = Delivered, "delivered"
		if len(j.allowed) > 0 {
			o.Reason = strings.Join(j.allowed, ", ")
		}
	} else {
		o.Verdict, o.Reason = c.reply(from, p, j, &o)
	}
	return attempt{verdict: o.Verdict, reason: o.Reason, outcome: &o, allowed: j.allowed}
}

// failed returns an attempt whose packet did not arrive; it names the backend if one was chosen. Without options, a
// destination that differs from the original one counts as a chosen backend.
func (c *Cluster) failed(j journey, options *[]int, v Verdict, reason string) attempt {
	a := attempt{verdict: v, reason: reason, path: j.hops}
	dst := j.packet.Dst
	if j.packet.Inner != nil {
		dst = j.packet.Inner.Dst
	}
	chosen := options == nil && dst != j.sent || options != nil && len(*options) > 0
	if !chosen || !dst.IsValid() || isDiscard(dst) || j.packet.Inner != nil {
		return a
	}
	o := c.outcome(j)
	o.Verdict, o.Reason = v, reason
	a.outcome = &o
	return a
}

// isDiscard reports whether an address means "no backend" (RFC 5737 TEST-NET-1, RFC 6666).
func isDiscard(a netip.Addr) bool {
	return netip.MustParsePrefix("192.0.2.0/24").Contains(a) || netip.MustParsePrefix("100::/64").Contains(a)
}

func (c *Cluster) outcome(j journey) Outcome {
	p := j.packet
	return Outcome{
		Backend: c.world.name(p.Dst),
		Address: target{p.Dst, p.DstPort}.String(),
		Source:  p.Src.String(),
		Hops:    hops.Lines(j.hops),
		Path:    j.hops,
	}
}

// refuses returns why a node's own stack answers with a reset: Kubernetes keeps node ports free of listeners.
func (c *Cluster) refuses(j journey) string {
	end := j.end
	if end.pod != nil || end.outside || !j.packet.HasPorts() {
		return ""
	}
	if id, is := c.world.nodePorts[portProto{j.packet.DstPort, j.packet.Proto}]; is {
		return fmt.Sprintf("%s: no process listens on node port %d of Service %s", end, j.packet.DstPort, id)
	}
	return ""
}

// reply sends the reply, and reports whether the client gets the packet that it expects.
func (c *Cluster) reply(from place, p sim.Packet, j journey, o *Outcome) (Verdict, string) {
	back := j.end
	r := j.packet.Reply()
	if back.outside {
		if owner := c.nodes[c.world.nodeOf(r.Dst)]; owner != nil {
			back.node = owner
		}
	}
	home := c.travel(back, r, nil)
	if c.toReply {
		o.Path = append(slices.Clone(o.Path), home.hops...)
		o.Hops = hops.Lines(o.Path)
	}
	got := home.packet
	switch {
	case home.lost != "":
		return Dropped, "the reply is lost: " + home.lost
	case !home.end.sameParty(from):
		return Dropped, fmt.Sprintf("the reply goes to %s", home.end)
	case got.Src != p.Dst || got.SrcPort != p.DstPort:
		return Dropped, fmt.Sprintf("the reply comes from %s, the client expects %s", target{got.Src, got.SrcPort}, target{p.Dst, p.DstPort})
	case got.Dst != p.Src || got.DstPort != p.SrcPort || got.ICMPID != p.ICMPID:
		return Dropped, fmt.Sprintf("the reply is for %s, the client is %s", target{got.Dst, got.DstPort}, target{p.Src, p.SrcPort})
	}
	if len(j.allowed) > 0 {
		return Delivered, strings.Join(j.allowed, ", ")
	}
	return Delivered, "delivered, and the reply arrives"
}

func icmpText(p sim.Packet) string {
	what := fmt.Sprintf("ICMP type %d code %d", p.ICMPType, p.ICMPCode)
	switch {
	case p.ICMPType == packet.Unreachable && p.ICMPCode == packet.CodeHost:
		what = "ICMP host unreachable"
	case p.ICMPType == packet.Unreachable && p.ICMPCode == packet.CodeNet:
		what = "ICMP network unreachable"
	case p.ICMPType == packet.Unreachable && p.ICMPCode == packet.CodePort:
		what = "ICMP port unreachable"
	case p.ICMPType == packet.TimeExceeded:
		what = "ICMP time exceeded"
	}
	if p.Proto == model.ICMPv6 {
		what = icmp6Text(p)
	}
	return what + " from " + p.Src.String()
}

func icmp6Text(p sim.Packet) string {
	switch {
	case p.ICMPType == packet.Unreachable6 && p.ICMPCode == packet.CodeNoRoute6:
		return "ICMPv6 no route"
	case p.ICMPType == packet.Unreachable6 && p.ICMPCode == packet.CodePort6:
		return "ICMPv6 port unreachable"
	case p.ICMPType == packet.TimeExceeded6:
		return "ICMPv6 time exceeded"
	}
	return fmt.Sprintf("ICMPv6 type %d code %d", p.ICMPType, p.ICMPCode)
}

// summary returns the verdict over all runs, delivered only if every run is, and a reason that names the Kubernetes object.
func (c *Cluster) summary(from place, p sim.Packet, runs []attempt) (Verdict, string) {
	verdict, bad, reason := Delivered, 0, ""
	for _, r := range runs {
		if r.verdict == Delivered {
			continue
		}
		if bad++; bad == 1 {
			verdict, reason = r.verdict, r.reason
		}
		if r.verdict == Dropped { // no answer is worse than an error
			verdict = Dropped
		}
	}
	about := c.about(from, p)
	switch {
	case bad == 0 && about == "":
		return Delivered, runs[0].reason
	case bad == 0:
		text := fmt.Sprintf("%s: %d of %d backends answer", about, len(runs), len(runs))
		return Delivered, strings.Join(append([]string{text}, allowances(runs)...), ", ")
	case len(runs) > 1:
		reason = fmt.Sprintf("%d of %d backends fail: %s", bad, len(runs), reason)
	}
	if about != "" {
		reason = about + ": " + reason
	}
	return verdict, reason
}

// allowances returns the policy rules that let the runs pass, each once.
func allowances(runs []attempt) []string {
	var out []string
	for _, r := range runs {
		for _, text := range r.allowed {
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// about returns the Service of a destination and its state on the client's node; "" if none.
func (c *Cluster) about(from place, p sim.Packet) string {
	id, ok := c.world.fronts[frontend{p.Dst, p.DstPort, p.Proto}]
	if !ok {
		if id, ok = c.world.vips[p.Dst]; !ok {
			return ""
		}
		return fmt.Sprintf("Service %s has no port %d/%s", id, p.DstPort, p.Proto)
	}
	text := "Service " + id.String() + endpointless(from.node, id, p)
	if notes := from.node.agent.Notes(model.Ref{Kind: model.KindService, Namespace: id.Namespace, Name: id.Name}); len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	return text
}

// endpointless returns which endpoints are missing on the client's node; the text begins with a space, or is empty.
func endpointless(n *node, id model.ServiceID, p sim.Packet) string {
	svc := n.agent.Rendered(id)
	if svc == nil {
		return " is not served by this agent"
	}
	external := !svc.ClusterIPs.Contains(p.Dst)
	for name, port := range svc.Ports {
		frontPort := port.Port
		if external && port.NodePort == p.DstPort {
			frontPort = port.NodePort
		}
		if frontPort != p.DstPort || int(port.Protocol) != int(p.Proto) {
			continue
		}
		policy, word := svc.InternalTrafficPolicy, "internalTrafficPolicy"
		if external {
			policy, word = svc.TrafficPolicy, "externalTrafficPolicy"
		}
		everywhere, here := ofTheFamily(svc.Backends[name], p), ofTheFamily(svc.Local(name), p)
		switch {
		case everywhere+here == 0:
			return fmt.Sprintf(" has no endpoint for port %d/%s", p.DstPort, p.Proto)
		case policy == renderer.NodeLocal && here == 0:
			return fmt.Sprintf(" has %s Local and no endpoint on %s", word, n.name)
		}
	}
	return ""
}

// ofTheFamily counts the endpoints with an address of the packet's family.
func ofTheFamily(list []*renderer.ServiceBackend, p sim.Packet) int {
	n := 0
	for _, b := range list {
		if b.Addr().Is6() == p.Dst.Is6() {
			n++
		}
	}
	return n
}
