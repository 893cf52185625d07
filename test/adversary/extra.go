package adversary

import (
	"fmt"
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

// forgeOutside is a packet by an uplink: to where s goes, from an address of the cluster.
func forgeOutside(k *Attacker, objects []policy.Object, s trace.Step) trace.Step {
	pods, nodes, outside := parties(objects)
	to, err := netip.ParseAddrPort(s.To)
	if err != nil {
		to = netip.AddrPortFrom(netip.MustParseAddr(s.To), 0)
	}
	list := special(objects)
	for _, p := range slices.Concat(pods, pods, nodes) {
		list = append(list, p.addrs...)
	}
	list = slices.DeleteFunc(list, func(a netip.Addr) bool { return a.Is4() != to.Addr().Is4() || a == to.Addr() })
	outside = slices.DeleteFunc(outside, func(p party) bool { _, has := p.of(to.Addr().Is4()); return !has })
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

// impersonated returns who has the address under which somebody outside sends; nil: the sender itself, or an address of the node at which
// the packet arrived, whose VPP knows that no packet from outside has it. Elsewhere the owner's rights count: a node that protects no pod
// does not check what enters by its uplink for another node.
func impersonated(l *Law, who *party, a *trace.Arrival) *party {
	src := a.Sent.Src
	if !strings.HasPrefix(who.name, "external:") || slices.Contains(who.addrs, src) || ownedBy(l, a.AtNode, src) {
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

// answersAsNode reports whether somebody outside sends under a foreign address, and the receiver gets the packet from an address of a node, or of VPP
// as the pods' router, to which it had sent, from and to the same ports. nat44 gives the node's address to packets of the node's pods that another
// node sends back, so no list can deny it where packets enter; agents do not know the router's; cnat may translate one node's address to another's.
// The receiver's own session lets them pass.
func answersAsNode(l *Law, who *party, a *trace.Arrival) bool {
	if !strings.HasPrefix(who.name, "external:") || slices.Contains(who.addrs, a.Sent.Src) {
		return false
	}
	return slices.ContainsFunc([]netip.Addr{a.Sent.Src, a.Packet.Src}, func(shown netip.Addr) bool {
		return (l.nodes[shown] || slices.Contains(kube.Routers(), shown)) && l.invited(l.now, shown, a) != ""
	})
}

// ends are both ends of a connection, in either order. ICMP has no ports.
type ends struct {
	proto policy.Protocol
	a, b  netip.AddrPort
}

// disturb ends what the law expects of connections to which a packet from outside, under a foreign address, belongs: NAT makes a session of
// such a packet, and translates the owner's next one by it.
func disturb(l *Law, who *party, a *trace.Arrival) {
	if !strings.HasPrefix(who.name, "external:") || slices.Contains(who.addrs, a.Sent.Src) {
		return
	}
	from, proto := endOf(a.Sent.Proto, a.Sent.Src, a.Sent.SrcPort), policy.Protocol(a.Sent.Proto)
	for _, to := range []netip.AddrPort{endOf(a.Sent.Proto, a.Sent.Dst, a.Sent.DstPort), endOf(a.Sent.Proto, a.Packet.Dst, a.Packet.DstPort)} {
		l.disturbed[ends{proto, from, to}], l.disturbed[ends{proto, to, from}] = true, true
	}
	for _, c := range l.begun {
		if c.kept && isDisturbed(l, c) {
			c.kept = false
			l.Disturbed++
		}
	}
}

// endOf is an end of a connection. Sessions of SCTP have addresses alone.
func endOf(proto model.Protocol, a netip.Addr, port uint16) netip.AddrPort {
	if proto == model.SCTP {
		port = 0
	}
	return netip.AddrPortFrom(a, port)
}

// followsForger reports whether somebody outside sent a packet between the ends of this one: sessions that it made let this one pass.
func followsForger(l *Law, a *trace.Arrival) bool {
	proto := a.Sent.Proto
	return l.disturbed[ends{policy.Protocol(proto), endOf(proto, a.Sent.Src, a.Sent.SrcPort), endOf(proto, a.Packet.Dst, a.Packet.DstPort)}]
}

// isDisturbed reports whether somebody outside sent a packet with the ends of a connection.
func isDisturbed(l *Law, c *conn) bool {
	client, proto := endOf(c.sent.Proto, c.first.Src, c.first.SrcPort), c.sent.Proto
	return l.disturbed[ends{c.first.Proto, client, endOf(proto, c.first.Dst, c.first.DstPort)}] ||
		l.disturbed[ends{c.first.Proto, client, endOf(proto, c.sent.Dst, c.sent.DstPort)}]
}

// datagram identifies a datagram in fragments.
type datagram struct {
	sender   string
	src, dst netip.Addr
	proto    model.Protocol
	id       uint16
}

func datagramOf(a *trace.Arrival) datagram {
	return datagram{a.Sender, a.Sent.Src, a.Sent.Dst, a.Sent.Proto, a.Packet.Fragment.ID}
}

// recordHeader remembers the header of a datagram's first fragment; a second one changes nothing.
func recordHeader(l *Law, a *trace.Arrival) {
	if _, known := l.headers[datagramOf(a)]; !known && a.Packet.Fragment.Any() {
		l.headers[datagramOf(a)] = a.Sent
	}
}

// firstHeader returns the header of the first fragment that was sent of a datagram; false: this is it, or the packet is whole.
func firstHeader(l *Law, a *trace.Arrival) (packet.Packet, bool) {
	first, known := l.headers[datagramOf(a)]
	return first, known && a.Packet.Fragment.Any() && !first.Equal(a.Sent)
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
