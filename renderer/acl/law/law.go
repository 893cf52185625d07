package law

import (
	"slices"
	"strconv"
	"strings"

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

// Law decides which permitted packets reflect.
type Law struct {
	Egress bool // the pod is the source
	Served *Ports
}

// Ports are the ports that a pod serves: of TCP those from dataplane.LowestClientPort on, of UDP all; nil: none.
type Ports struct {
	tcp, udp []match.Span // sorted, not empty together
	id       string       // equal for equal ports
}

// NewPorts returns the ports that a pod with these ports serves; nil: none.
func NewPorts(tcp, udp []match.Span) *Ports {
	if tcp = high(tcp); len(tcp)+len(udp) == 0 {
		return nil
	}
	p := &Ports{}
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

// Key is "" for no ports.
func (p *Ports) Key() string {
	if p == nil {
		return ""
	}
	return p.id
}

// Of returns the ports of TCP or UDP.
func (p *Ports) Of(proto uint8) []match.Span {
	switch {
	case p == nil:
		return nil
	case proto == match.TCP:
		return p.tcp
	}
	return p.udp
}

// High returns the ports of TCP or UDP in the range of client ports.
func (p *Ports) High(proto uint8) []match.Span { return high(p.Of(proto)) }

// bothPorts are the ports of both ends of packets: the pod's, and its peer's.
type bothPorts struct{ own, peer match.Span }

// answers returns the ports of packets that are answers, unless they begin a connection of TCP.
func (l Law) answers(proto uint8) (out []bothPorts) {
	low, high := match.Span{Lo: 0, Hi: dataplane.LowestClientPort - 1}, match.Span{Lo: dataplane.LowestClientPort, Hi: 65535}
	served := l.Served.Of(proto)
	switch {
	case proto == match.TCP && l.Egress:
		for _, s := range match.JoinSpans(match.SortSpans(append([]match.Span{low}, served...))) {
			out = append(out, bothPorts{s, match.AllPorts})
		}
		return out
	case l.Egress:
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

// Writer writes atoms under a law.
type Writer struct {
	Law
	pairs [2][]bothPorts // answers, of TCP and UDP
}

// Writer returns what writes atoms under the law.
func (l Law) Writer() Writer {
	return Writer{l, [2][]bothPorts{l.answers(match.TCP), l.answers(match.UDP)}}
}

// AppendTo appends the atoms of one policy atom: answers are permitted, all other packets reflect.
func (w *Writer) AppendTo(out []match.Atom, a match.Atom) []match.Atom {
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
			if w.Egress {
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

// high returns the part of spans in the range of client ports.
func high(list []match.Span) (out []match.Span) {
	for _, s := range list {
		if s, ok := s.And(match.Span{Lo: dataplane.LowestClientPort, Hi: 65535}); ok {
			out = append(out, s)
		}
	}
	return out
}
