package adversary

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Limits leave out a part of what an attacker does: for the search for what else is found.
type Limits struct {
	NoForged, NoRestarts, NoChanges, NoSCTP bool
	// NoBetween: no packet is sent between two messages, and interfaces exist when a VPP restarts.
	NoBetween bool
	// NoExtras: no fragments, and nobody outside forges.
	NoExtras bool
	// NoShrink: a finding is as it was found.
	NoShrink bool
}

// Attacker draws events. It draws only from the game, so a seed determines all events.
type Attacker struct {
	rng      *rand.Rand
	world    *generate.World
	services []*kube.Service
	targets  []int32
	history  []trace.Arrival // of the last packets, arrived or not
	from     []string        // their senders, as in questions
	used     []uint16        // ports
	limits   Limits
	between  int               // packets between the messages of one event, at most
	talk     []trace.Step      // continues after a change
	free     uint16            // the number of checks: their ports are even, TestVPPAdversary probes a choice from the odd one
	hosts    bool              // the world began with host endpoints
	extra    *rand.Rand        // of Extras
	ids      map[string]uint16 // the first identification of fragments, by sender
}

const remembered = 40

// Note remembers what became of a packet.
func (k *Attacker) Note(from string, a trace.Arrival) {
	if len(k.history) == remembered {
		k.history, k.from = k.history[1:], k.from[1:]
	}
	k.history, k.from = append(k.history, a), append(k.from, from)
	if p := a.Sent.SrcPort; p != 0 && !slices.Contains(k.used, p) && len(k.used) < remembered {
		k.used = append(k.used, p)
	}
}

// Int draws one of 0 to n-1.
func (k *Attacker) Int(n int) int { return k.rng.IntN(n) }

func (k *Attacker) chance(n int) bool { return k.rng.IntN(n) == 0 }

func oneOf[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// Next is one more event.
func (k *Attacker) Next(objects []policy.Object) Event {
	if len(k.talk) > 0 && !k.chance(6) {
		s := k.talk[0]
		k.talk = k.talk[1:]
		if own(objects, s.From, dialledAddr(s.To).Is4()).IsValid() {
			return Event{Step: s}
		}
	}
	switch n := k.rng.IntN(100); {
	case n < 6 && k.limits.NoChanges, n >= 6 && n < 8 && k.limits.NoRestarts:
	case n < 6:
		return Event{Changes: k.changes(objects)}
	case n < 8:
		return k.restart(objects)
	case n < 11:
		return Event{Step: trace.Step{After: oneOf(k.rng, "1s", "1s", "5s", "45s", "6m", "3h")}}
	case n < 40 && len(k.history) > 0:
		return Event{Step: k.again(objects)}
	}
	return Event{Step: k.fresh(objects)}
}

// dialledAddr reads the address that a question dials, with a port or without.
func dialledAddr(to string) netip.Addr {
	if at, err := netip.ParseAddrPort(to); err == nil {
		return at.Addr()
	}
	return netip.MustParseAddr(to)
}

// restart is an agent that restarts or ends, or a VPP that restarts.
func (k *Attacker) restart(objects []policy.Object) Event {
	_, nodes, _ := parties(objects)
	node := strings.TrimPrefix(oneOf(k.rng, nodes...).name, "node:")
	e := Event{Step: trace.Step{Restart: oneOf(k.rng, "agent:", "agent:", "vpp:") + node}}
	switch n := k.rng.IntN(4); {
	case strings.HasPrefix(e.Restart, "vpp:") && n < 2 && k.limits.NoBetween:
	case strings.HasPrefix(e.Restart, "vpp:") && n < 2:
		e.Bare = 1 + k.rng.Uint64N(1<<32)
	case n == 0:
		return Event{Stop: node}
	}
	return e
}

// Between is a packet after a message of an event that has this name, of which so many may be left; false: not here. Earlier packets'
// connections continue while an interface gets its roles of NAT.
func (k *Attacker) Between(objects []policy.Object, message string, left *int) (trace.Step, bool) {
	role := message == "nat44_interface_add_del_feature" && len(k.history) > 0
	if *left == 0 || k.limits.NoBetween || !role && !k.chance(12) || role && !k.chance(2) {
		return trace.Step{}, false
	}
	*left--
	if len(k.history) > 0 && (role || !k.chance(3)) {
		return k.again(objects), true
	}
	return k.fresh(objects), true
}

// changes are those of one random change.
func (k *Attacker) changes(objects []policy.Object) []generate.Change {
	if n := k.rng.IntN(6); n == 0 {
		oneOf(k.rng, k.services...).Mutate(k.rng, k.targets)
	} else if n == 1 { // endpoints go or come back
		s := oneOf(k.rng, k.services...)
		s.Every = (s.Every + 1) % 3
	} else {
		k.world.Step()
	}
	k.converse()
	return kube.Differ(objects, k.Objects())
}

// converse continues recent connections as parties that know of no change would: requests, and answers to requests that are lost.
func (k *Attacker) converse() {
	k.talk = nil
	for i := len(k.history) - 1; i >= 0 && len(k.talk) < longestTalk; i-- {
		a := &k.history[i]
		if a.At == "" || a.At == a.Sender || a.Packet.IsICMPError() || k.chance(2) || a.Sent.IsICMP() && !a.Sent.IsEchoRequest() {
			continue
		}
		reply := a.Packet.Reply()
		there, back := k.goesOn(k.from[i], &a.Sent, oneOf(k.rng, "PA", "A", "S")), k.goesOn(receiver(a), &reply, oneOf(k.rng, "PA", "A", "SA"))
		if reply.IsICMP() {
			back.Flags = "echo-reply"
		}
		k.talk = append(k.talk, there, back, there, back, there)
	}
}

// longestTalk bounds how many packets go on after a change.
const longestTalk = 20

// Objects are all of the cluster.
func (k *Attacker) Objects() []policy.Object {
	out := k.world.Objects()
	pods := kube.Running(out)
	for _, s := range k.services {
		out = append(out, s.Objects(pods)...)
	}
	policy.Sort(out)
	return out
}

// sender is mostly a pod.
func (k *Attacker) sender(objects []policy.Object) party {
	pods, nodes, outside := parties(objects)
	n := k.rng.IntN(12)
	switch {
	case n == 0:
		return oneOf(k.rng, outside...)
	case n == 1 || len(pods) == 0:
		return oneOf(k.rng, nodes...)
	}
	return oneOf(k.rng, pods...)
}

// fresh is a packet of a new conversation.
func (k *Attacker) fresh(objects []policy.Object) trace.Step {
	who := k.sender(objects)
	knocks := k.hosts && k.chance(4) // at a host endpoint
	if knocks {
		_, _, outside := parties(objects)
		who = oneOf(k.rng, outside...)
	}
	v4 := !k.chance(3)
	if _, ok := who.of(v4); !ok {
		v4 = !v4
	}
	proto := oneOf(k.rng, "TCP", "TCP", "TCP", "UDP", "UDP", "SCTP", "ICMP")
	if proto == "SCTP" && k.limits.NoSCTP {
		proto = "TCP"
	}
	to, proto := k.target(objects, v4, proto)
	if knocks && k.chance(2) {
		to = ofNode(objects, who.node, to)
	}
	s := trace.Step{Question: trace.Question{From: who.name, Protocol: proto}, OneWay: true}
	k.address(&s, to)
	s.SourcePort = k.sourcePort()
	if k.chance(6) {
		s.Flags = k.flags(proto)
	}
	k.forge(&s, objects, who, v4)
	return s
}

// ofNode is an address of a node, of the same family and with the same port as another one; that one if the node has none.
func ofNode(objects []policy.Object, node string, to netip.AddrPort) netip.AddrPort {
	if a := own(objects, "node:"+node, to.Addr().Is4()); a.IsValid() {
		return netip.AddrPortFrom(a, to.Port())
	}
	return to
}

func (k *Attacker) address(s *trace.Step, to netip.AddrPort) {
	s.To = to.String()
	if s.Protocol == "ICMP" {
		s.To = to.Addr().String()
	}
}

// sourcePort is mostly one that was used before, or one that servers have.
func (k *Attacker) sourcePort() uint16 {
	switch n := k.rng.IntN(8); {
	case n < 3 && len(k.used) > 0:
		return oneOf(k.rng, k.used...)
	case n == 3:
		return oneOf[uint16](k.rng, 80, 81, 8080, 53, 8001)
	}
	return oneOf[uint16](k.rng, 4000, 4001, 4002, 33000, 40000, 60000)
}

func (k *Attacker) flags(proto string) string {
	switch proto {
	case "TCP":
		return oneOf(k.rng, "S", "SA", "A", "PA", "FA", "R", "-")
	case "SCTP":
		return oneOf(k.rng, "INIT", "INIT-ACK", "DATA", "COOKIE-ECHO", "ABORT", "SACK")
	case "ICMP":
		return oneOf(k.rng, "echo-request", "echo-reply")
	}
	return ""
}

// forge gives a pod's packet, now and then, a foreign source address.
func (k *Attacker) forge(s *trace.Step, objects []policy.Object, who party, v4 bool) {
	if !strings.HasPrefix(who.name, "pod:") || !k.chance(6) || k.limits.NoForged {
		return
	}
	pods, nodes, _ := parties(objects)
	list := []netip.Addr{netip.MustParseAddr(outsiders[0]), netip.MustParseAddr(outsiders[1])}
	for _, p := range slices.Concat(pods, nodes, nodes) {
		list = append(list, p.addrs...)
	}
	list = append(list, kube.Special(objects)...)
	own, _ := who.of(v4)
	list = slices.DeleteFunc(list, func(a netip.Addr) bool { return a.Is4() != v4 || slices.Contains(who.addrs, a) || a == own })
	s.SourceAddress = oneOf(k.rng, list...).String()
}

// target draws a packet's destination and protocol: pods, Services by each of their addresses, nodes, the plumbing.
func (k *Attacker) target(objects []policy.Object, v4 bool, proto string) (netip.AddrPort, string) {
	pods, nodes, _ := parties(objects)
	var list []netip.Addr
	port := uint16(oneOf(k.rng, k.targets...))
	switch n := k.rng.IntN(10); {
	case n < 4 && len(k.services) > 0:
		s := oneOf(k.rng, k.services...)
		if proto != "ICMP" && proto != "SCTP" {
			proto = string(s.Proto)
		}
		if s.NodePort() != 0 && k.chance(3) {
			list, port = oneOf(k.rng, nodes...).addrs, uint16(s.NodePort())
			break
		}
		for _, text := range s.Addresses() {
			list = append(list, netip.MustParseAddr(text))
		}
		port = uint16(s.Port())
	case n == 4:
		list = oneOf(k.rng, nodes...).addrs
	case n == 5:
		list = kube.Special(objects)
	default:
		for _, p := range pods {
			list = append(list, p.addrs...)
		}
		if len(k.used) > 0 && k.chance(6) {
			port = oneOf(k.rng, k.used...)
		}
	}
	list = slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return a.Is4() != v4 })
	if len(list) == 0 {
		list = nodes[0].addrs[:1]
		if !v4 {
			list = nodes[0].addrs[1:2]
		}
	}
	return netip.AddrPortFrom(oneOf(k.rng, list...), port), proto
}

// again is a packet that has to do with an earlier one.
func (k *Attacker) again(objects []policy.Object) trace.Step {
	i := len(k.history) - 1 - min(k.rng.IntN(len(k.history)), k.rng.IntN(len(k.history)))
	a := k.history[i]
	p := &a.Sent
	s := trace.Step{Question: trace.Question{From: k.from[i], Protocol: protocol(p)}, OneWay: true, SourcePort: number(p, true)}
	switch n := k.rng.IntN(10); {
	case n < 4 && a.At != "" && !p.IsICMPError() && !a.Packet.IsICMPError(): // the receiver answers, or pushes
		s.From = receiver(&a)
		k.address(&s, netip.AddrPortFrom(a.Packet.Src, a.Packet.SrcPort))
		s.SourcePort = number(&a.Packet, false)
		s.Flags = answerFlags(k, p)
	case n < 7: // the next packet of the connection, or the same again
		k.address(&s, netip.AddrPortFrom(p.Dst, p.DstPort))
		if s.Flags = continued(k, p); p.Src != own(objects, s.From, p.Src.Is4()) {
			s.SourceAddress = p.Src.String()
		}
	default: // the same port, to another one: what a Service hid is dialled directly, and the other way round
		to, _ := k.target(objects, p.Dst.Is4(), s.Protocol)
		k.address(&s, to)
	}
	if own(objects, s.From, p.Dst.Is4()) == (netip.Addr{}) {
		return k.fresh(objects) // the sender no longer exists
	}
	return s
}

// GoesOn is one more packet of one of these connections, from its client; false: there is none.
func (k *Attacker) GoesOn(list []trace.Arrival) (Event, trace.Arrival, bool) {
	if len(list) == 0 {
		return Event{}, trace.Arrival{}, false
	}
	c := oneOf(k.rng, list...)
	return Event{Step: k.goesOn(c.Sender, &c.Sent, "PA"), Continues: "there"}, c, true
}

// GoesBack is what the server of a connection answers when it got that packet.
func (k *Attacker) GoesBack(c, got *trace.Arrival) Event {
	reply := got.Packet.Reply()
	e := Event{Step: k.goesOn(c.At, &reply, "A"), Continues: "back"}
	if reply.IsICMP() {
		e.Flags = "echo-reply"
	}
	return e
}

// goesOn is one more packet like this, of a connection that was opened before.
func (k *Attacker) goesOn(from string, p *packet.Packet, flags string) trace.Step {
	s := trace.Step{Question: trace.Question{From: from, Protocol: protocol(p)}, OneWay: true, SourcePort: number(p, true)}
	k.address(&s, netip.AddrPortFrom(p.Dst, p.DstPort))
	switch p.Proto {
	case model.TCP:
		s.Flags = flags
	case model.SCTP:
		s.Flags = "DATA"
	}
	return s
}

// number is the port that an answer, or one more packet, has; of an echo the identifier.
func number(p *packet.Packet, source bool) uint16 {
	if p.IsICMP() {
		return p.ICMPID
	}
	if source {
		return p.SrcPort
	}
	return p.DstPort
}

func answerFlags(k *Attacker, p *packet.Packet) string {
	switch p.Proto {
	case model.TCP:
		return oneOf(k.rng, "SA", "A", "PA", "FA", "R")
	case model.SCTP:
		return oneOf(k.rng, "INIT-ACK", "SACK", "DATA")
	case model.ICMP, model.ICMPv6:
		return "echo-reply"
	}
	return ""
}

func continued(k *Attacker, p *packet.Packet) string {
	switch p.Proto {
	case model.TCP:
		return oneOf(k.rng, "S", "A", "PA", "PA", "FA", "R")
	case model.SCTP:
		return oneOf(k.rng, "INIT", "COOKIE-ECHO", "DATA")
	}
	return ""
}

func protocol(p *packet.Packet) string {
	if p.IsICMP() {
		return "ICMP"
	}
	return p.Proto.String()
}

// receiver is the party that got a packet, as questions name it.
func receiver(a *trace.Arrival) string {
	if strings.HasPrefix(a.At, "pod:") || strings.HasPrefix(a.At, "node:") {
		return a.At
	}
	return fmt.Sprintf("external:%s@%s", a.At, a.AtNode)
}

// own is the address of a named party in a family; invalid: it has none, or does not exist.
func own(objects []policy.Object, name string, v4 bool) netip.Addr {
	pods, nodes, outside := parties(objects)
	for _, p := range slices.Concat(pods, nodes, outside) {
		if p.name == name {
			a, _ := p.of(v4)
			return a
		}
	}
	return netip.Addr{}
}

// Check asks whether a new connection works, from a port that nobody else uses; false: there is nobody to ask.
func (k *Attacker) Check(objects []policy.Object, renderer agent.ServiceRenderer) (Event, bool) {
	pods, _, _ := parties(objects)
	if len(pods) == 0 {
		return Event{}, false
	}
	who := oneOf(k.rng, pods...)
	v4 := k.chance(2)
	if _, ok := who.of(v4); !ok {
		v4 = !v4
	}
	k.free++
	s := trace.Step{Question: trace.Question{From: who.name, Protocol: oneOf(k.rng, "TCP", "TCP", "UDP", "ICMP")}, SourcePort: 20000 + 2*(k.free%5000)}
	to := oneOf(k.rng, pods...)
	dst, ok := to.of(v4)
	port := uint16(oneOf(k.rng, k.targets...))
	if svc := oneOf(k.rng, k.services...); k.chance(2) && (v4 || renderer != agent.RendererNAT44) {
		dst, port, s.Protocol, ok = netip.MustParseAddr(svc.Addresses()[0]), uint16(svc.Port()), string(svc.Proto), true
		if !v4 {
			dst = netip.MustParseAddr(svc.Addresses()[1])
		}
		to = party{}
	}
	k.address(&s, netip.AddrPortFrom(dst, port))
	return Event{Step: s, Check: true}, ok && to.name != who.name
}
