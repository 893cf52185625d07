package acl

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A rule that permits and reflects makes a session of every packet it matches, and a session permits both directions of its flow. So
// an answer must not make one: it would open the path for requests again, after policies no longer permit them. TCP without SYN and
// UDP do not say whether they are requests or answers; the port of the pod whose interface it is does, and NAT does not change that
// port there. The pod's port is the source port of egress and the destination port of ingress.
//
//	the pod's port  │ egress           │ ingress          TCP with SYN and without ACK always reflects;
//	a server's      │ answer: permit   │ request: reflect protocols other than TCP and UDP do, too.
//	a client's      │ request: reflect │ answer: permit
//
// UDP has nothing that begins a flow. Egress of UDP from a low port to a low port reflects, unless the pod is known to serve it: clients
// that choose such ports themselves (resolvers, NTP) have to get their answers.
//
// Whether a packet reflects depends on the packet and the pod alone: all rules of an interface agree about it, so the order of rules
// that permit still does not matter.

// law decides which permitted packets reflect.
type law struct {
	egress bool // the pod is the source
	served *ports
}

// ports are ports that a pod serves: of TCP those from dataplane.LowestClientPort on, of UDP all; nil: none.
type ports struct {
	tcp, udp []span // sorted, not empty together
	id       string // the same for the same ports
}

// newPorts sorts and joins ports; nil: there are none.
func newPorts(tcp, udp []span) *ports {
	if len(tcp)+len(udp) == 0 {
		return nil
	}
	p := &ports{}
	var b strings.Builder
	for i, list := range [2][]span{tcp, udp} {
		list = joined(sortSpans(slices.Clone(list)))
		*[2]*[]span{&p.tcp, &p.udp}[i] = list
		for _, s := range list {
			b.WriteString([2]string{"t", "u"}[i] + strconv.Itoa(int(s.lo)) + "-" + strconv.Itoa(int(s.hi)))
		}
	}
	p.id = b.String()
	return p
}

// key is "" for no ports.
func (p *ports) key() string {
	if p == nil {
		return ""
	}
	return p.id
}

// of are the ports of TCP or UDP.
func (p *ports) of(proto uint8) []span {
	switch {
	case p == nil:
		return nil
	case proto == protoTCP:
		return p.tcp
	}
	return p.udp
}

// bothPorts are the ports of both ends of packets: the pod's own, and its peer's.
type bothPorts struct{ own, peer span }

// answers are the ports of packets that are answers, unless they begin a connection of TCP.
func (l law) answers(proto uint8) (out []bothPorts) {
	low, high := span{0, dataplane.LowestClientPort - 1}, span{dataplane.LowestClientPort, 65535}
	served := l.served.of(proto)
	switch {
	case proto == protoTCP && l.egress:
		for _, s := range joined(sortSpans(append([]span{low}, served...))) {
			out = append(out, bothPorts{s, allPorts})
		}
		return out
	case l.egress:
		for _, s := range served {
			out = append(out, bothPorts{s, allPorts})
		}
		for _, s := range low.without(served) {
			out = append(out, bothPorts{s, high})
		}
		return out
	}
	for _, s := range high.without(served) {
		out = append(out, bothPorts{s, allPorts})
	}
	return out
}

func sortSpans(list []span) []span {
	slices.SortFunc(list, func(a, b span) int { return int(a.lo) - int(b.lo) })
	return list
}

// without is what of s is in none of others, which are sorted.
func (s span) without(others []span) []span {
	out := []span{s}
	for _, o := range others {
		last := len(out) - 1
		if out = append(out[:last], out[last].minus(o)...); len(out) == 0 {
			break
		}
	}
	return out
}

// writer writes atoms as a law has it.
type writer struct {
	law
	pairs [2][]bothPorts // answers, of TCP and UDP
}

func (l law) writer() writer {
	return writer{l, [2][]bothPorts{l.answers(protoTCP), l.answers(protoUDP)}}
}

// appendTo appends the atoms that one of a policy becomes: what is an answer permits, the rest reflects.
func (w *writer) appendTo(out []atom, a atom) []atom {
	if a.verb != allow {
		return append(out, a)
	}
	whole := false
	for i, proto := range [2]uint8{protoTCP, protoUDP} {
		if a.proto != 0 && a.proto != proto {
			continue
		}
		for _, e := range w.pairs[i] {
			b := a
			b.proto = proto
			own, peer := &b.dport, &b.sport
			if w.egress {
				own, peer = peer, own
			}
			was := bothPorts{*own, *peer}
			var ok, also bool
			*own, ok = own.and(e.own)
			*peer, also = peer.and(e.peer)
			if !ok || !also {
				continue
			}
			whole = whole || a.proto != 0 && was == (bothPorts{*own, *peer})
			if proto == protoTCP {
				b.verb, b.syn = reflect, true
				out = append(out, b)
			}
			b.verb, b.syn = admit, false
			out = append(out, b)
		}
	}
	if whole {
		return out
	}
	a.verb = reflect
	return append(out, a)
}

// lawOf is the law of a table at an interface with these served ports.
func (t *table) lawOf(served *ports) law {
	return law{egress: t.egress, served: served}
}

// lawless reports whether a table has one name under every law: nothing in it is permitted by a policy, so each law writes it alike.
func lawless(table string) bool {
	switch table {
	case staticIn, staticOut, denyAll, noSCTP, fromPool, fromHidden:
		return true
	}
	_, reserved := kv.NeedsSCTPPorts(table)
	return reserved || isSource(table) || strings.HasPrefix(table, groupPrefix) || strings.HasPrefix(table, barred+"-")
}

// wireName is the name under which VPP has a table at interfaces with these served ports. Almost no pod serves high ports, so
// tables are shared by pods.
func wireName(table string, served *ports) string {
	if served == nil || lawless(table) {
		return table
	}
	if name := table + "." + nameOf(served.id)[:8]; len(name) <= mostName {
		return name
	}
	return "served-" + nameOf(table+"\x00"+served.id)
}

// mostName is how long names may be for VPP's tags to hold them.
const mostName = 40

// mostPorts bounds a range of a policy that is taken for what its pods serve: a broader one says nothing about it.
const mostPorts = 1024

// explicit are the ports that rules for ingress name. Each pod to which the policy applies is taken to serve them.
func explicit(steps []step) (tcp, udp []span) {
	for i := range steps {
		for k := range steps[i].clauses {
			c := &steps[i].clauses[k]
			if c.verb != allow {
				continue
			}
			m := c.matches[0]
			for _, s := range m.dst.ports {
				if s.hi-s.lo >= mostPorts {
					continue
				}
				if m.proto == protoTCP || m.proto < 0 {
					tcp = append(tcp, s)
				}
				if m.proto == protoUDP || m.proto < 0 {
					udp = append(udp, s)
				}
			}
		}
	}
	return tcp, udp
}

// high is the part of spans that clients would use.
func high(list []span) (out []span) {
	for _, s := range list {
		if s, ok := s.and(span{dataplane.LowestClientPort, 65535}); ok {
			out = append(out, s)
		}
	}
	return out
}

// servedBy are the ports that an interface's pod serves, as the node and the policies that apply to it say.
func (r *Renderer) servedBy(i *iface) *ports {
	var spans [2][]span
	for _, s := range r.node.Served {
		if slices.Contains(i.addrs, s.Addr) {
			k := index(s.Proto == protoUDP)
			spans[k] = append(spans[k], span{s.First, s.Last})
		}
	}
	if r.named > 0 {
		take := func(p *rules) {
			if p != nil && p.served != nil {
				spans[0], spans[1] = append(spans[0], p.served.tcp...), append(spans[1], p.served.udp...)
			}
		}
		for _, w := range i.work {
			w.specs[0].each(func(id policyID) { take(r.policies[id]) }, func(name string) { take(r.profiles[name]) })
		}
	}
	return newPorts(high(spans[0]), spans[1])
}

// findServed brings the served ports of interfaces up to date.
func (r *Renderer) findServed() {
	for _, i := range r.ifaces {
		if now := r.servedBy(i); now.key() != i.served.key() {
			i.served = now
			r.dirty.ifaces[i] = struct{}{}
			r.dirty.remote = true
		}
	}
}

// rulesChanged notes that a policy or profile has other rules than before; nil: none.
func (r *Renderer) rulesChanged(before, now *rules) {
	var keys [2]string
	for i, p := range [2]*rules{before, now} {
		if p == nil || p.served == nil {
			continue
		}
		keys[i] = p.served.id
		r.named += 2*i - 1
	}
	if keys[0] != keys[1] {
		r.dirty.places = true
	}
}

// servedTable makes sessions of what comes to the high ports of local pods, where packets come from anywhere but a local pod.
func (r *Renderer) servedTable() *table {
	t := &table{name: servedHigh}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}
	for _, name := range slices.Sorted(maps.Keys(r.ifaces)) {
		i := r.ifaces[name]
		for _, a := range i.addrs {
			dst := netip.PrefixFrom(a, a.BitLen())
			for _, proto := range [2]uint8{protoTCP, protoUDP} {
				for _, s := range high(i.served.of(proto)) {
					t.add(atom{verb: reflect, src: familyOf(a).all(), dst: dst, proto: proto, sport: allPorts, dport: s}, cause)
				}
			}
		}
	}
	return t
}
