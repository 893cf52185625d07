package live

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/trace/hops"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

// receivedBy returns the interface by which a packet came; 0: VPP does not show it.
func receivedBy(k *tracer.Packet) uint32 {
	for i := range k.Steps {
		if s := &k.Steps[i]; s.Interface != 0 && !s.Sends {
			return s.Interface
		}
	}
	return 0
}

// place is an interface of VPP under the names that traces have.
type place struct {
	shown string // as in predictions: "pod-prod/web", "uplink", "overlay", "host"; otherwise VPP's name
	known string // the agent's name; "": none
}

// path is a packet's path while it is described.
type path struct {
	*Pods
	known  map[uint32]*tracer.Interface
	places map[uint32]place
	out    []hops.Hop
	header tracer.Header // the last one that a node showed
	nat    int           // the last node of a translation since then; -1: none
}

// describePath adds the packet and its path to the answer; in the loop.
func (p *Pods) describePath(a *Answer, k *tracer.Packet, known map[uint32]*tracer.Interface) {
	w := &path{Pods: p, known: known, places: p.namePlaces(known), header: *k.Opening(), nat: -1}
	a.Packet, a.Session = headerOf(&w.header), k.Session()
	if w.header.Protocol == uint8(model.TCP) {
		a.Flags = flagLetters(w.header.Flags)
	}
	came := false
	for i := range k.Steps {
		s := &k.Steps[i]
		switch {
		case !came && s.Header != nil:
			came = true
			h := headerOf(&w.header)
			w.addHop(s, hops.Hop{Kind: hops.Input, Interface: w.nameAt(receivedBy(k)).shown, Packet: &h, Text: "from " + w.nameAt(receivedBy(k)).shown})
		case came && w.describeStep(k, i):
			a.Path = w.out
			a.Left = w.sessionsLeft(k)
			return
		}
	}
	a.Path, a.Left = w.out, w.sessionsLeft(k)
}

// sessionsLeft names the sessions that the packet made: of access lists where a rule reflects, of NAT where it was translated.
func (w *path) sessionsLeft(k *tracer.Packet) (out []string) {
	for i := range k.Steps {
		if s := &k.Steps[i]; s.ACL != nil && s.ACL.Permit && s.ACL.Reflect && !s.ACL.Session {
			out = append(out, fmt.Sprintf("a session of the access lists of %s, %s", w.nameAt(s.Interface).shown, directionOf(s.ACL)))
		}
	}
	for _, h := range w.out {
		if t := h.Translation; t != nil && !h.Dropped {
			line := fmt.Sprintf("a session of %s, %s now %s", h.Kind, endsOf(&t.Before), endsOf(&t.After))
			if owners := w.ownersOf(t.Before.Destination, t.After.Destination); owners != "" {
				line += ": " + owners
			}
			out = append(out, line)
		}
	}
	return out
}

// ownersOf names the Services and pods of addresses: "Service prod/db, pod prod/db-0". A pod on its node's network has no address alone.
func (w *path) ownersOf(addrs ...string) string {
	var names []string
	for _, addr := range addrs {
		has := func(a netip.Addr) bool { return a.String() == addr }
		for _, o := range w.Objects() {
			switch o := o.(type) {
			case *model.Service:
				if slices.ContainsFunc(o.ClusterIPs, has) {
					names = append(names, "Service "+o.ID.String())
				}
			case *model.Pod:
				if !o.HostNetwork && !o.Finished && slices.ContainsFunc(o.IPs, has) {
					names = append(names, "pod "+o.ID.String())
				}
			}
		}
	}
	return strings.Join(slices.Compact(names), ", ") // a source that NAT replaces has one destination
}

func directionOf(m *tracer.ACL) string {
	if m.Output {
		return "output"
	}
	return "input"
}

// endsOf is a header in short: "TCP 10.1.1.2:4000 -> 10.96.0.10:80".
func endsOf(h *hops.Header) string {
	end := func(addr string, port uint16) string {
		if port == 0 {
			return addr
		}
		return net.JoinHostPort(addr, strconv.Itoa(int(port)))
	}
	return fmt.Sprintf("%s %s -> %s", h.Protocol, end(h.Source, h.SourcePort), end(h.Destination, h.DestinationPort))
}

// describeStep describes one step. It returns true at the end of the path: what VPP sends afterwards is another packet, or has another header around it.
func (w *path) describeStep(k *tracer.Packet, i int) (last bool) {
	s := &k.Steps[i]
	switch {
	case s.ACL != nil:
		w.showHeader(&s.ACL.Seen)
		w.addVerdict(s)
		return !s.ACL.Permit
	case strings.HasPrefix(s.Node, "nat44-ed"):
		w.addHop(s, hops.Hop{Kind: hops.NAT44, Text: s.Text})
		w.nat = len(w.out) - 1
	case strings.Contains(s.Node, "cnat-"):
		w.addHop(s, hops.Hop{Kind: hops.CNAT, Text: s.Text})
		w.nat = len(w.out) - 1
	case strings.HasSuffix(s.Node, "-icmp-error"):
		w.addHop(s, hops.Hop{Kind: hops.Other, Text: "VPP answers with an ICMP error", Dropped: true})
		return true
	case s.Node == "error-drop" || s.Node == "drop" || s.Node == "error-punt":
		w.addDrop(k, i)
		return true
	case strings.HasSuffix(s.Node, "-output") && s.Header != nil:
		w.showHeader(s.Header)
		at, h := w.nameAt(sentBy(k, i)), headerOf(&w.header)
		w.addHop(s, hops.Hop{Kind: hops.Output, Interface: at.shown, Packet: &h, Text: "to " + at.shown})
		return true
	case s.Node == "ip4-lookup" || s.Node == "ip6-lookup":
		if s.Header != nil {
			w.showHeader(s.Header)
		}
		w.addHop(s, hops.Hop{Kind: hops.Lookup, Text: s.Text})
	case s.Node == "ip4-local" || s.Node == "ip6-local":
		w.addHop(s, hops.Hop{Kind: hops.Other, Text: "VPP itself gets the packet"})
		return true
	default:
		w.addHop(s, hops.Hop{Kind: hops.Other, Text: s.Text})
	}
	return false
}

// sentBy returns the interface that the last step before an output names.
func sentBy(k *tracer.Packet, before int) uint32 {
	for i := before; i >= 0; i-- {
		if s := &k.Steps[i]; s.Sends {
			return s.Interface
		}
	}
	return 0
}

func (w *path) addHop(s *tracer.Step, h hops.Hop) {
	h.Node, h.GraphNode = w.node, s.Node
	w.out = append(w.out, h)
}

// showHeader notes a header that a node shows. If it differs from the one before, the last node of a translation since then has changed it.
func (w *path) showHeader(now *tracer.Header) {
	h := *now
	if h.Protocol == uint8(model.ICMP) || h.Protocol == uint8(model.ICMPv6) || h.SourcePort == 0 && h.DestinationPort == 0 {
		h.SourcePort, h.DestinationPort, h.Identifier = w.header.SourcePort, w.header.DestinationPort, w.header.Identifier // the node shows no ports
	}
	if h.TTL == 0 {
		h.TTL = w.header.TTL
	}
	t := hops.Translation{Before: headerOf(&w.header), After: headerOf(&h)}
	before := t.Before
	before.TTL = t.After.TTL // a router changes it, too
	if before != t.After && w.nat >= 0 {
		w.out[w.nat].Translation = &t
	}
	w.header, w.nat = h, -1
}

// addVerdict adds the verdict of an interface's access lists.
func (w *path) addVerdict(s *tracer.Step) {
	at, m := w.nameAt(s.Interface), s.ACL
	h := hops.Hop{Kind: hops.AccessList, Interface: at.shown, Direction: directionOf(m), Dropped: !m.Permit}
	lists := w.known[s.Interface]
	indexes := []uint32(nil)
	if lists != nil {
		indexes = lists.Input
	}
	if m.Output && lists != nil {
		indexes = lists.Output
	}
	h.ACL = &hops.ACL{List: -1, Rule: m.Rule, Session: m.Session, Permit: m.Permit}
	if !m.Session && m.List >= 0 {
		h.ACL.List = slices.IndexFunc(indexes, func(index uint32) bool { return int64(index) == int64(m.List) })
	}
	verb := "permit"
	if !m.Permit {
		verb = "deny"
	}
	switch {
	case m.Session:
		h.ACL.Rule, h.Text = -1, verb+" by a session"
	case m.List < 0:
		h.ACL.Rule, h.Text = -1, verb+": no rule matches"
	default:
		h.Text = fmt.Sprintf("%s by rule %d of list %d", verb, m.Rule, h.ACL.List)
	}
	w.explain(&h, at, len(indexes), m)
	w.addHop(s, h)
}

// explain adds the reason of a verdict, if the lists that the agent sent decide by the same rule.
func (w *path) explain(h *hops.Hop, at place, lists int, m *tracer.ACL) {
	if w.Policies == nil || at.known == "" || m.Session {
		return
	}
	place, rule, sent := flows.FirstRule(w.Sent, at.known, m.Output, space.Header{
		Src: m.Seen.Source, Dst: m.Seen.Destination, Protocol: m.Seen.Protocol, SrcPort: m.Seen.SourcePort, DstPort: m.Seen.DestinationPort, Flags: m.Seen.Flags,
	})
	front := 0 // lists before those of policies: that of source ranges
	if !m.Output && lists > sent {
		front = lists - sent
	}
	switch found := h.ACL.List - front; {
	case m.List >= 0 && found < 0:
		h.Text += ", before the lists of policies"
	case m.List < 0 && rule >= 0:
		h.Text += fmt.Sprintf("; rule %d of list %d should: the agent sent other lists", rule, place+front)
	case m.List >= 0 && (found != place || m.Rule != rule):
		h.Text += "; the agent sent other lists"
	default:
		if m.List < 0 { // the reason of the end of the lists
			place = sent - 1
		}
		if r, ok := w.Policies.Explain(at.known, m.Output, place, rule); ok && r.Denied == !m.Permit {
			d := r.Decision()
			h.Decision = &d
		}
	}
}

// addDrop marks the node that dropped the packet: the one before a node of drops.
func (w *path) addDrop(k *tracer.Packet, i int) {
	reason := ""
	for _, s := range k.Steps[i:] {
		if from, text, ok := strings.Cut(s.Text, ": "); ok && s.Node == "drop" && i > 0 && from == k.Steps[i-1].Node {
			reason = ": " + text
		}
	}
	if n := len(w.out); n > 0 && i > 0 && w.out[n-1].GraphNode == k.Steps[i-1].Node {
		w.out[n-1].Dropped = true
		w.out[n-1].Text += reason
		return
	}
	w.addHop(&k.Steps[i], hops.Hop{Kind: hops.Other, Text: "drop" + reason, Dropped: true})
}

// nameAt returns the names of an interface.
func (w *path) nameAt(index uint32) place {
	if p, ok := w.places[index]; ok {
		return p
	}
	if i := w.known[index]; i != nil {
		return place{shown: i.Name}
	}
	return place{shown: "an unknown interface"}
}

// namePlaces names the interfaces of the node's pods, and those that lead out of it.
func (p *Pods) namePlaces(known map[uint32]*tracer.Interface) map[uint32]place {
	out, l := map[uint32]place{}, p.located()
	if l == nil {
		l = &event.Located{}
	}
	name := func(shown, agents string) {
		for index, i := range known {
			if agents != "" && (i.Name == agents || i.Tag == agents || strings.HasSuffix(i.Tag, ":"+agents)) {
				out[index] = place{shown, agents}
			}
		}
	}
	name(cni.Overlay, l.Overlay)
	name(cni.Uplink, l.Uplink)
	name(cni.Host, l.Host)
	for _, o := range p.Objects() {
		pod, ok := o.(*model.Pod)
		if !ok || pod.NodeName != p.node || pod.HostNetwork || pod.Finished {
			continue
		}
		for _, a := range pod.IPs {
			name(cni.PodInterface(pod.ID), l.Pods[a])
		}
	}
	return out
}

func headerOf(h *tracer.Header) hops.Header {
	return hops.Header{
		Protocol: model.Protocol(h.Protocol).String(), Source: h.Source.String(), SourcePort: h.SourcePort, Destination: h.Destination.String(),
		DestinationPort: h.DestinationPort, Identifier: h.Identifier, TTL: h.TTL,
	}
}

// flagLetters returns flags as questions of trace name them: those about which lists and sessions ask.
func flagLetters(flags uint8) string {
	if flags &= packet.FIN | packet.SYN | packet.RST | packet.PSH | packet.ACK; flags == 0 {
		return ""
	}
	return packet.FlagString(flags)
}
