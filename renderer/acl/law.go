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
// an answer must not make one: the session would permit requests again that policies no longer allow. TCP without SYN and UDP do not
// show whether a packet is a request or an answer. The port of the interface's pod shows it, and NAT does not change that port
// there. The pod's port is the source port of egress and the destination port of ingress.
//
//	the pod's port  │ egress           │ ingress          TCP with SYN and without ACK always reflects;
//	a server's      │ answer: permit   │ request: reflect protocols other than TCP and UDP do, too.
//	a client's      │ request: reflect │ answer: permit
//
// UDP has no packet that begins a flow. Egress of UDP from a low port to a low port reflects, unless the pod is known to serve the port:
// clients that choose such ports themselves (resolvers, NTP) must get their answers.
//
// Whether a packet reflects depends on the packet and the pod alone: all rules of an interface agree, so the order of permitting
// rules has no effect.

// law decides which permitted packets reflect.
type law struct {
	egress bool // the pod is the source
	served *ports
}

// ports are the ports that a pod serves: of TCP those from dataplane.LowestClientPort on, of UDP all; nil: none.
type ports struct {
	tcp, udp []span // sorted, not empty together
	id       string // equal for equal ports
}

// newPorts sorts and joins ports; nil: none.
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

// of returns the ports of TCP or UDP.
func (p *ports) of(proto uint8) []span {
	switch {
	case p == nil:
		return nil
	case proto == protoTCP:
		return p.tcp
	}
	return p.udp
}

// bothPorts are the ports of both ends of packets: the pod's, and its peer's.
type bothPorts struct{ own, peer span }

// answers returns the ports of packets that are answers, unless they begin a connection of TCP.
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

// without returns the part of s outside others, which are sorted.
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

// writer writes atoms under a law.
type writer struct {
	law
	pairs [2][]bothPorts // answers, of TCP and UDP
}

func (l law) writer() writer {
	return writer{l, [2][]bothPorts{l.answers(protoTCP), l.answers(protoUDP)}}
}

// appendTo appends the atoms of one policy atom: answers are permitted, all other packets reflect.
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

// lawOf returns the law of a table at an interface with these served ports.
func (t *table) lawOf(served *ports) law {
	return law{egress: t.egress, served: served}
}

// lawless reports whether a table has one name under every law: it permits nothing by policy, so each law writes it alike.
func lawless(table string) bool {
	switch table {
	case staticIn, staticOut, denyAll, noSCTP, fromPool, fromHidden:
		return true
	}
	_, reserved := kv.NeedsSCTPPorts(table)
	return reserved || isSource(table) || strings.HasPrefix(table, groupPrefix) || strings.HasPrefix(table, closedPrefix) || strings.HasPrefix(table, barred+"-")
}

// wireName returns VPP's name of a table at interfaces with these served ports. Almost no pod serves high ports, so pods share
// tables.
func wireName(table string, served *ports) string {
	if served == nil || lawless(table) {
		return table
	}
	if name := table + "." + nameOf(served.id)[:8]; len(name) <= mostName {
		return name
	}
	return "served-" + nameOf(table+"\x00"+served.id)
}

// mostName is the longest name that VPP's tags can hold.
const mostName = 40

// mostPorts bounds a policy's port range that counts as served: a broader range says nothing about the pods.
const mostPorts = 1024

// explicit returns the ports that ingress rules name. Each pod that the policy applies to counts as serving them.
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

// high returns the part of spans in the range of client ports.
func high(list []span) (out []span) {
	for _, s := range list {
		if s, ok := s.and(span{dataplane.LowestClientPort, 65535}); ok {
			out = append(out, s)
		}
	}
	return out
}

// servedBy returns the ports that an interface's pod serves, according to the node and the policies that apply to the pod.
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

// findServed updates the served ports of interfaces.
func (r *Renderer) findServed() {
	for _, i := range r.ifaces {
		if now := r.servedBy(i); now.key() != i.served.key() {
			i.served = now
			r.dirty.ifaces[i] = struct{}{}
			r.dirty.remote = true
		}
	}
}

// rulesChanged records that the rules of a policy or profile changed; nil: none.
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

// servedTable makes sessions of packets to the high ports of local pods, on interfaces to destinations other than local pods.
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
