package verify

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
	"github.com/contiv-agent/contiv-agent/verify/question"
)

func splitComma(text string) iter.Seq[string] { return strings.SplitSeq(text, ",") }

// difference describes a header of a set about which VPP, which passes the headers of vpp, and policies differ.
func (n *node) difference(p *pod, packets string, egress bool, different, vpp space.Set) *Difference {
	h := n.example(different)
	at := n.vppVerdict(p, egress, h)
	d := &Difference{Packet: h.String(), Header: example.HeaderOf(h), VPP: at.Text, VPPPasses: n.space.Contains(vpp, h), Lists: []ListVerdict{at}, Trace: n.question(p, egress, h)}
	switch {
	case packets == "forged sources":
		d.Policy = fmt.Sprintf("denied: %s is not an address of %s", h.Src, p.ID)
	case strings.HasPrefix(packets, "answers"):
		d.Policy = "answers to this packet have to pass, and the other direction's lists do not pass all packets: the rule has to reflect"
		d.VPPPasses = true
	case egress || strings.HasPrefix(packets, "ingress") && n.senderOf(h) == nil:
		d.Policy = n.reasonFor(d, p, egress, h)
	default: // from a local pod: both ends decide
		q := n.senderOf(h)
		d.Policy = fmt.Sprintf("egress of %s: %s; ingress of %s: %s", q.ID, n.reasonFor(d, q, true, h), p.ID, n.reasonFor(d, p, false, h))
		if packets == "ingress from local pods by Services" {
			d.VPP += " (the input of " + q.ID.String() + " sees the Service's address)"
			break
		}
		sent := n.vppVerdict(q, true, h)
		d.VPP, d.Lists = sent.Text+"; "+d.VPP, []ListVerdict{sent, at}
	}
	return d
}

// reasonFor adds what the policies of a pod decide, and returns it in words.
func (n *node) reasonFor(d *Difference, p *pod, egress bool, h space.Header) string {
	decision := n.cluster.Decide(p.Pod, egress, h)
	d.Decisions = append(d.Decisions, example.DecisionOf(p.ID, egress, &decision))
	return decision.Text
}

func (n *node) senderOf(h space.Header) *pod {
	for _, p := range n.pods {
		for _, a := range p.IPs {
			if a == h.Src {
				return p
			}
		}
	}
	return nil
}

// example prefers packets that are easy to send: a new connection of TCP from a usual port, between addresses of pods.
func (n *node) example(set space.Set) space.Header {
	s := n.space
	narrow := func(preferred ...space.Set) { set = space.Narrow(s, set, preferred...) }
	var pods []netip.Prefix
	for _, p := range n.cluster.Pods {
		pods = append(pods, p.Nets()...)
	}
	outside := []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("2001:db8::7/128")}
	syn := space.Boxes(s, func(b *space.Box) { b.Protocols, b.FlagMask, b.FlagBits = space.One(space.TCP), 255, space.SYN })
	narrow(s.Box(space.All4()), s.All())
	narrow(syn, space.OfProtocol(s, space.UDP), space.Echo(s), space.OfProtocol(s, space.ICMP), space.OfProtocol(s, space.ICMPv6))
	narrow(s.Sources(pods...), s.Sources(outside...))
	narrow(s.Destinations(pods...), s.Destinations(outside...))
	ports := s.Union(space.OfProtocol(s, space.TCP), space.OfProtocol(s, space.UDP))
	narrow(s.Intersect(ports, space.Boxes(s, func(b *space.Box) { b.SrcPorts = space.One(40000) })))
	narrow(s.Intersect(ports, space.Boxes(s, func(b *space.Box) { b.DstPorts = space.Span{First: 1, Last: 65535} })))
	h, _ := s.Witness(set)
	return h
}

// vppVerdict says what the lists of an interface do with a header, and which rule decides.
func (n *node) vppVerdict(p *pod, egress bool, h space.Header) ListVerdict {
	v := ListVerdict{Pod: p.ID.String(), Interface: p.iface.Name, Direction: "output", List: -1, ACL: -1, Rule: -1}
	vector := p.iface.Output
	if egress {
		v.Direction, vector = "input", p.iface.Input
	}
	at := fmt.Sprintf("%s of %s", v.Direction, p.iface.Name)
	if len(vector) == 0 {
		v.Passes, v.Text = true, fmt.Sprintf("passes: %s has no access list", at)
		return v
	}
	for place, index := range vector {
		l := n.state.Lists[index]
		if l == nil {
			continue
		}
		for i := range l.Space {
			r := &l.Space[i]
			if !r.Contains(h) {
				continue
			}
			does := "dropped"
			if v.Passes = r.Verdict != dump.Deny; v.Passes {
				does = "passes"
			}
			v.List, v.ACL, v.Name, v.Rule = place, int(l.Index), l.Name, i
			v.Text = fmt.Sprintf("%s: %s, list %d (acl %d, %s), rule %d: %s", does, at, place, l.Index, l.Name, i, l.Text(i))
			return v
		}
	}
	v.Text = fmt.Sprintf("dropped: %s, no rule of its %d lists matches", at, len(vector))
	return v
}

// question is the question about a packet for the trace command. "": it has none for such packets.
func (n *node) question(p *pod, egress bool, h space.Header) string {
	if egress && !ownsAddr(p.Pod, h.Src) {
		return question.Line(question.Pod(p.ID.String()), h, true)
	}
	if from := podAt(n.cluster, h.Src); from != nil {
		return question.Line(question.Pod(from.ID.String()), h, false)
	}
	return question.Line(question.External(h.Src, n.cfg.Node), h, false)
}

func podAt(c *meaning.Cluster, a netip.Addr) *meaning.Pod {
	for _, p := range c.Pods {
		if ownsAddr(p, a) {
			return p
		}
	}
	return nil
}

func ownsAddr(p *meaning.Pod, a netip.Addr) bool {
	for _, own := range p.IPs {
		if own == a {
			return true
		}
	}
	return false
}
