package acl

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
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
	tcp, udp []match.Span // sorted, not empty together
	id       string       // equal for equal ports
}

// newPorts sorts and joins ports; nil: none.
func newPorts(tcp, udp []match.Span) *ports {
	if len(tcp)+len(udp) == 0 {
		return nil
	}
	p := &ports{}
	var b strings.Builder
	for i, list := range [2][]match.Span{tcp, udp} {
		list = match.JoinSpans(match.SortSpans(slices.Clone(list)))
		*[2]*[]match.Span{&p.tcp, &p.udp}[i] = list
		for _, s := range list {
			b.WriteString([2]string{"t", "u"}[i] + strconv.Itoa(int(s.Lo)) + "-" + strconv.Itoa(int(s.Hi)))
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
func (p *ports) of(proto uint8) []match.Span {
	switch {
	case p == nil:
		return nil
	case proto == match.TCP:
		return p.tcp
	}
	return p.udp
}

// bothPorts are the ports of both ends of packets: the pod's, and its peer's.
type bothPorts struct{ own, peer match.Span }

// answers returns the ports of packets that are answers, unless they begin a connection of TCP.
func (l law) answers(proto uint8) (out []bothPorts) {
	low, high := match.Span{Lo: 0, Hi: dataplane.LowestClientPort - 1}, match.Span{Lo: dataplane.LowestClientPort, Hi: 65535}
	served := l.served.of(proto)
	switch {
	case proto == match.TCP && l.egress:
		for _, s := range match.JoinSpans(match.SortSpans(append([]match.Span{low}, served...))) {
			out = append(out, bothPorts{s, match.AllPorts})
		}
		return out
	case l.egress:
		for _, s := range served {
			out = append(out, bothPorts{s, match.AllPorts})
		}
		for _, s := range low.Without(served) {
			out = append(out, bothPorts{s, high})
		}
		return out
	}
	for _, s := range high.Without(served) {
		out = append(out, bothPorts{s, match.AllPorts})
	}
	return out
}

// writer writes atoms under a law.
type writer struct {
	law
	pairs [2][]bothPorts // answers, of TCP and UDP
}

func (l law) writer() writer {
	return writer{l, [2][]bothPorts{l.answers(match.TCP), l.answers(match.UDP)}}
}

// appendTo appends the atoms of one policy atom: answers are permitted, all other packets reflect.
func (w *writer) appendTo(out []match.Atom, a match.Atom) []match.Atom {
	if a.Verb != match.Allow {
		return append(out, a)
	}
	whole := false
	for i, proto := range [2]uint8{match.TCP, match.UDP} {
		if a.Proto != 0 && a.Proto != proto {
			continue
		}
		for _, e := range w.pairs[i] {
			b := a
			b.Proto = proto
			own, peer := &b.DstPorts, &b.SrcPorts
			if w.egress {
				own, peer = peer, own
			}
			was := bothPorts{*own, *peer}
			var ok, also bool
			*own, ok = own.And(e.own)
			*peer, also = peer.And(e.peer)
			if !ok || !also {
				continue
			}
			whole = whole || a.Proto != 0 && was == (bothPorts{*own, *peer})
			if proto == match.TCP {
				b.Verb, b.SYN = match.Reflect, true
				out = append(out, b)
			}
			b.Verb, b.SYN = match.Admit, false
			out = append(out, b)
		}
	}
	if whole {
		return out
	}
	a.Verb = match.Reflect
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
func explicit(steps []step) (tcp, udp []match.Span) {
	for i := range steps {
		for k := range steps[i].clauses {
			c := &steps[i].clauses[k]
			if c.Verb != match.Allow {
				continue
			}
			m := c.Matches[0]
			for _, s := range m.Dst.Ports {
				if s.Hi-s.Lo >= mostPorts {
					continue
				}
				if m.Proto == match.TCP || m.Proto < 0 {
					tcp = append(tcp, s)
				}
				if m.Proto == match.UDP || m.Proto < 0 {
					udp = append(udp, s)
				}
			}
		}
	}
	return tcp, udp
}

// high returns the part of spans in the range of client ports.
func high(list []match.Span) (out []match.Span) {
	for _, s := range list {
		if s, ok := s.And(match.Span{Lo: dataplane.LowestClientPort, Hi: 65535}); ok {
			out = append(out, s)
		}
	}
	return out
}

// servedBy returns the ports that an interface's pod serves, according to the node and the policies that apply to the pod.
func (r *Renderer) servedBy(i *iface) *ports {
	var spans [2][]match.Span
	for _, s := range r.node.Served {
		if slices.Contains(i.addrs, s.Addr) {
			k := directionIndex(s.Proto == match.UDP)
			spans[k] = append(spans[k], match.Span{Lo: s.First, Hi: s.Last})
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
			for _, proto := range [2]uint8{match.TCP, match.UDP} {
				for _, s := range high(i.served.of(proto)) {
					t.add(match.Atom{Verb: match.Reflect, Src: match.FamilyOf(a).All(), Dst: dst, Proto: proto, SrcPorts: match.AllPorts, DstPorts: s}, cause)
				}
			}
		}
	}
	return t
}
