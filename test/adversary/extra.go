package adversary

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Extra packets have a separate random stream, and the attacker does not remember them: a seed draws the same other events with them and
// without. They are fragments, and packets that enter by an uplink under an address of the cluster.

// extraOdds: one of so many events has extra packets behind it.
const extraOdds = 4

// Extras returns packets that follow an event.
func (k *Attacker) Extras(objects []policy.Object) []trace.Step {
	if k.limits.NoExtras {
		return nil
	}
	main := k.rng
	k.rng = k.extra
	defer func() { k.rng = main }()
	if !k.chance(extraOdds) {
		return nil
	}
	s := k.fresh(objects)
	if len(k.history) > 0 && k.chance(2) {
		s = k.again(objects)
	}
	if k.chance(3) {
		return []trace.Step{forgeOutside(k, objects, s)}
	}
	return inFragments(k, s)
}

// forgeOutside is a packet by an uplink: to the address that s dials, from an address of the cluster.
func forgeOutside(k *Attacker, objects []policy.Object, s trace.Step) trace.Step {
	pods, nodes, outside := parties(objects)
	to := dialledAddr(s.To)
	list := kube.Special(objects)
	for _, p := range slices.Concat(pods, pods, nodes) {
		list = append(list, p.addrs...)
	}
	list = slices.DeleteFunc(list, func(a netip.Addr) bool { return a.Is4() != to.Is4() || a == to })
	outside = slices.DeleteFunc(outside, func(p party) bool { _, has := p.of(to.Is4()); return !has })
	if len(list) == 0 || len(outside) == 0 {
		return s
	}
	s.From, s.SourceAddress = oneOf(k.rng, outside...).name, oneOf(k.rng, list...).String()
	return s
}

// inFragments sends a packet in fragments: all, some, in another order, or with a second first fragment, which has another port, between
// the first one and the later ones.
func inFragments(k *Attacker, s trace.Step) []trace.Step {
	if k.ids[s.From] == 0 { // senders do not share identifications: no kernel joins what two of them sent
		k.ids[s.From] = uint16(1 + len(k.ids)*perSender)
	}
	s.Fragments, s.Identification = 2+k.Int(3), k.ids[s.From]+uint16(k.Int(perSender))
	part := func(only string) trace.Step {
		p := s
		p.Only = only
		return p
	}
	switch n := k.Int(10); {
	case n < 3:
		return []trace.Step{s}
	case n < 4:
		return []trace.Step{part("reversed")}
	case n < 5:
		return []trace.Step{part("first")}
	case n < 6:
		return []trace.Step{part("later")}
	case n < 7:
		return []trace.Step{part("later"), part("first")}
	}
	other := part("first")
	if to, err := netip.ParseAddrPort(s.To); err == nil {
		other.To = netip.AddrPortFrom(to.Addr(), uint16(oneOf(k.rng, k.targets...))).String()
		other.SourcePort = k.sourcePort()
	}
	if k.chance(2) {
		return []trace.Step{other, part("first"), part("later")}
	}
	return []trace.Step{part("first"), other, part("later")}
}

// perSender is how many identifications of fragments a sender has.
const perSender = 8

// extras plays the packets that follow an event.
func extras(t *table, k *Attacker, known map[Class]bool) (Breach, error) {
	for _, s := range k.Extras(t.objects) {
		if breach, err := t.one(k, Event{Step: s, Extra: true}, known); !breach.None() || err != nil {
			return breach, err
		}
	}
	return Breach{}, nil
}

// forges reports whether a party outside sends under a foreign address.
func (p *party) forges(a *trace.Arrival) bool {
	return strings.HasPrefix(p.name, "external:") && !slices.Contains(p.addrs, a.Sent.Src)
}

// forgersExcuse names how an outsider's forged address explains an arrival that policies deny; "": it does not. The owner is the party that the sender
// impersonates; nil: none.
func forgersExcuse(l *Law, who, owner *party, a *trace.Arrival) string {
	switch {
	case answersAsNode(l, who, a):
		return "an outsider under the address of a node, to which the receiver sent"
	case renamed(l, a) && evaluate(l, who, underOwn(a)).None():
		return "a pod under the address that a forged packet dialled"
	case strings.HasPrefix(who.name, "pod:") && (a.Sent.Src == a.Packet.Src || renamed(l, a)) && l.disturbed[endsOf(&a.Sent, &a.Packet)]: // sessions of such a packet let this one pass
		return "a pod by the session of an outsider's forged packet"
	case owner == nil:
		return ""
	}
	as := *a
	as.Sender, as.Node = owner.name, owner.node
	f := flowOf(owner.node, a.Sent.Src, a.Packet.Dst, &a.Packet)
	admitted := l.ever(func(p *policy.Cluster) bool { return p.JudgeIngress(&f).Allowed }) // no interface evaluates the owner's egress
	if admitted || evaluate(l, owner, &as).None() {
		return "an outsider under the address of another node, or of its pod"
	}
	return ""
}

// impersonated returns who has the address under which an outsider sends; nil: the sender itself, or an address of the node at which
// the packet arrived, whose VPP knows that no packet from outside has it. Elsewhere the owner's rights count: a node that protects no pod
// does not check what enters by its uplink for another node.
func impersonated(l *Law, who *party, a *trace.Arrival) *party {
	src := a.Sent.Src
	if !who.forges(a) || ownedBy(l, a.AtNode, src) {
		return nil
	}
	owner := &party{name: fmt.Sprintf("external:%s@%s", src, who.node), node: who.node, addrs: []netip.Addr{src}}
	for name, p := range l.addrs {
		if slices.Contains(p.addrs, src) && (owner.node == who.node || name < owner.name) {
			owner = p
		}
	}
	return owner
}

// answersAsNode reports whether an outsider sends under a foreign address, and the receiver gets the packet from an address of a node, or of VPP
// as the pods' router, to which it had sent, from and to the same ports. nat44 gives the node's address to packets of the node's pods that another
// node sends back, so no list can deny it where packets enter; agents do not know the router's; cnat may translate one node's address to another's, and
// chooses the port where it gives a client its node's address. The receiver's own session lets them pass.
func answersAsNode(l *Law, who *party, a *trace.Arrival) bool {
	hidden := *a
	hidden.Sent.Src, hidden.Sent.SrcPort = a.Packet.Src, a.Packet.SrcPort
	return who.forges(a) && slices.ContainsFunc([]*trace.Arrival{a, &hidden}, func(a *trace.Arrival) bool {
		shown := a.Sent.Src
		return (l.nodes[shown] || slices.Contains(kube.Routers(), shown)) && l.invited(l.now, shown, a) != ""
	})
}

// ends are both ends of a connection, in either order. ICMP has no ports.
type ends struct {
	proto policy.Protocol
	a, b  netip.AddrPort
}

// renamed reports whether cnat gave a pod's packet, by the session of a forged packet, the address and port that the forged packet had dialled from the
// address and port of this packet's receiver. It does so behind the receiver's list, which knows the packet by its own address.
func renamed(l *Law, a *trace.Arrival) bool {
	e := endsOf(&a.Packet, &a.Packet)
	return strings.HasPrefix(a.Sender, "pod:") && a.Packet.Src != a.Sent.Src && isForged(l, e.proto, e.b, e.a, a.AtNode)
}

// underOwn is an arrival under its sender's own address and port.
func underOwn(a *trace.Arrival) *trace.Arrival {
	own := *a
	own.Packet.Src, own.Packet.SrcPort = a.Sent.Src, a.Sent.SrcPort
	return &own
}

// isForged reports whether a node's NAT may have a session of a forged packet between two ends.
func isForged(l *Law, proto policy.Protocol, from, to netip.AddrPort, node string) bool {
	return slices.Contains(l.forged[forgery{proto, from, ""}], to) || slices.Contains(l.forged[forgery{proto, from, node}], to)
}

// disturb ends what the law expects of connections to which a packet under a foreign address belongs, because NAT makes a session of such a packet. If
// the sender is outside, NAT translates the owner's next packet by it. If the sender is a pod, its list drops the packet, but cnat has chosen an
// endpoint before: if that is at the same node, its answers to the owner, from and to these ports, get the Service's address (ADR 13).
func disturb(l *Law, who *party, a *trace.Arrival) {
	switch {
	case who.forges(a):
		for _, to := range []*packet.Packet{&a.Sent, &a.Packet} {
			e := endsOf(&a.Sent, to)
			l.disturbed[e], l.disturbed[ends{e.proto, e.b, e.a}] = true, true
		}
		recordForgery(l, &a.Sent, "")
	case strings.HasPrefix(who.name, "pod:") && !slices.Contains(who.addrs, a.Sent.Src) && !ofPod(l, a.Sent.Dst):
		recordForgery(l, &a.Sent, who.node)
	}
	for _, c := range l.begun {
		if c.kept && isDisturbed(l, c) {
			c.kept = false
			l.Disturbed++
		}
	}
}

// ofPod reports whether a pod has the address.
func ofPod(l *Law, addr netip.Addr) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(l.addrs)), func(p *party) bool { return strings.HasPrefix(p.name, "pod:") && slices.Contains(p.addrs, addr) })
}

// forgery is the client's side of cnat's session of a forged packet: the owner's address and port, and the node of a pod that forged it. A packet from
// outside may have a session at each node, and has the node "".
type forgery struct {
	proto policy.Protocol
	from  netip.AddrPort
	node  string
}

// recordForgery remembers what a forged packet dialled.
func recordForgery(l *Law, sent *packet.Packet, node string) {
	e := endsOf(sent, sent)
	if key := (forgery{e.proto, e.a, node}); !slices.Contains(l.forged[key], e.b) {
		l.forged[key] = append(l.forged[key], e.b)
	}
}

// endsOf are the source of one packet and the destination of another. Sessions of SCTP have addresses alone.
func endsOf(from, to *packet.Packet) ends {
	src, dst := from.SrcPort, to.DstPort
	if from.Proto == model.SCTP {
		src, dst = 0, 0
	}
	return ends{policy.Protocol(from.Proto), netip.AddrPortFrom(from.Src, src), netip.AddrPortFrom(to.Dst, dst)}
}

// isDisturbed reports whether an outsider sent a packet with the ends of a connection, or a pod of its server's node sent one from the client's
// end to a Service.
func isDisturbed(l *Law, c *conn) bool {
	first := packet.Packet{Proto: c.sent.Proto, Src: c.first.Src, SrcPort: c.first.SrcPort, Dst: c.first.Dst, DstPort: c.first.DstPort}
	e := endsOf(&first, &first)
	return l.disturbed[e] || l.disturbed[endsOf(&first, &c.sent)] || len(l.forged[forgery{e.proto, e.a, c.node}]) > 0
}

// datagram identifies a datagram in fragments.
type datagram struct {
	sender   string
	src, dst netip.Addr
	proto    model.Protocol
	id       uint16
}

func datagramOf(a *trace.Arrival) datagram {
	return datagram{a.Sender, a.Sent.Src, a.Sent.Dst, a.Sent.Proto, a.Identification}
}

// recordHeader remembers the header of a datagram's first fragment; a second one changes nothing.
func recordHeader(l *Law, a *trace.Arrival) {
	if _, known := l.headers[datagramOf(a)]; !known && a.Identification != 0 {
		l.headers[datagramOf(a)] = a.Sent
	}
}

// firstHeader returns the header of the first fragment that was sent of a datagram; false: this is it, or the packet is whole.
func firstHeader(l *Law, a *trace.Arrival) (packet.Packet, bool) {
	first, known := l.headers[datagramOf(a)]
	return first, known && a.Identification != 0 && !first.Equal(a.Sent)
}

// ownedBy reports whether an address is one that only a node has: its own, its pods', of its plumbing.
func ownedBy(l *Law, node string, a netip.Addr) bool {
	return slices.Contains(kube.Plumbing(), a) || slices.ContainsFunc(l.homes[node], func(p netip.Prefix) bool { return p.Contains(a) })
}

// homes are the networks of nodes: their addresses, and those of their pods.
func homes(objects []policy.Object) map[string][]netip.Prefix {
	out := kube.PodNetworks(objects)
	pods, nodes, _ := parties(objects)
	for _, p := range slices.Concat(pods, nodes) {
		for _, a := range p.addrs {
			out[p.node] = append(out[p.node], netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
