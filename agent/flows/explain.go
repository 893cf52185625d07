package flows

import (
	"context"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Loop is what a watcher needs of an agent.
type Loop struct {
	Do     func(context.Context, ...vpp.Call) []vpp.Reply
	InLoop func(context.Context, func()) error
	// The rest is called in the loop.
	Policies *policy.Processor // nil: policies are not enforced
	Sent     func(key string) proto.Message
	Objects  func() []model.Object

	reasons *reasons // at this read
}

// droppedBy reads a drop: its text, whether an access list dropped the packet, and whether that was at an interface's input.
func droppedBy(node, text string) (why string, byList, input bool) {
	if node == "" {
		return "unknown reason", false, false
	}
	rest, byList := strings.CutPrefix(node, "acl-plugin-")
	return node + ": " + text, byList && strings.HasPrefix(text, "ACL deny"), strings.HasPrefix(rest, "in-")
}

// explain returns the flows of observations, and the headers of their packets; in the loop.
func (w *Watcher) explain(l *Loop, seen []observation) ([]flows.Flow, []space.Header) {
	l.reasons = newReasons(l.Policies)
	out, headers := make([]flows.Flow, 0, len(seen)), make([]space.Header, 0, len(seen))
	for i := range seen {
		switch o := &seen[i]; {
		case o.seenBy == BySessions && l.isRepeated(o):
		case o.seenBy == ByProbe:
			out = w.explainProbed(l, o, out)
		default:
			f := w.nameEnds(o)
			if w.holds(l, o, &f) {
				continue
			}
			// NAT44 lets packets pass before the receiver's list drops them, while another interface has a session: such packets are no connection.
			denied := w.findDecision(l, o, &f)
			if denied && o.assumed {
				e, _ := endsOf(o.source, o.destination, o.protocol)
				delete(w.known.assumed, e) // it is not shown
				continue
			}
			if denied && o.seenBy == BySessions && o.counts.Connections == 0 || w.deniesEndpoint(l, o, &f) {
				continue
			}
			w.meter.countFlow(&f)
			out = append(out, f)
		}
		for len(headers) < len(out) {
			headers = append(headers, seen[i].headerOf())
		}
	}
	return out, headers
}

// headerOf returns the header of the packet between the two ends.
func (o *observation) headerOf() space.Header {
	h := space.Header{Src: o.source.Addr(), Dst: o.destination.Addr(), Protocol: o.protocol, SrcPort: o.source.Port(), DstPort: o.destination.Port(), Flags: o.flags}
	if o.dropped == "" && o.protocol == space.TCP {
		h.Flags = space.SYN
	}
	return h
}

// nameEnds returns the flow of an observation without its decision.
func (w *Watcher) nameEnds(o *observation) flows.Flow {
	now := w.Now()
	f := flows.Flow{
		First: now, Last: now, Node: w.Node, Source: w.index.ownerAt(o.source.Addr()), Destination: w.index.ownerAt(o.destination.Addr()),
		Protocol: model.Protocol(o.protocol).String(), Verdict: flows.Allowed, Translation: o.translation, Counts: o.counts, SeenBy: o.seenBy,
	}
	if hasPorts(o.protocol) {
		f.SourcePort, f.Port = o.source.Port(), o.destination.Port()
	}
	if o.dropped != "" {
		f.Verdict = flows.Dropped
	}
	if p := w.index.ownerAt(o.dialled().Addr()); p.Kind == flows.Service {
		f.Translation.Service = p.Namespace + "/" + p.Name
	}
	return f
}

func hasPorts(protocol uint8) bool {
	return protocol == space.TCP || protocol == space.UDP || protocol == space.SCTP
}

// findDecision finds the rule that decided about an observation. It reports whether the rules that it found decide otherwise.
func (w *Watcher) findDecision(l *Loop, o *observation, f *flows.Flow) (otherwise bool) {
	f.Decision.Text = o.dropped
	if l.Policies == nil || o.dropped != "" && !o.byList {
		return false
	}
	h := o.headerOf()
	if o.translation != nil { // the sender's list sees what it dialled
		h.Dst, h.DstPort = o.translation.Dialled.Addr(), o.translation.Dialled.Port()
	}
	interfaces, _ := l.Policies.InterfacesAt(o.atPod())
	for _, iface := range interfaces {
		r, ok := w.rules.reasonOf(l, iface, !o.input, h)
		if !ok {
			continue
		}
		if r.Denied != (o.dropped != "") {
			otherwise = true
			continue
		}
		f.Decision = r.Decision()
		if f.Direction = "ingress"; r.Egress || !r.Decides && o.input {
			f.Direction = "egress"
		}
		return false
	}
	return otherwise
}

// isRepeated reports whether a session is not the one at the interface of a local pod that made it: other interfaces repeat it.
func (l *Loop) isRepeated(o *observation) bool {
	if l.Policies == nil {
		return true
	}
	_, ofPod := l.Policies.InterfacesAt(o.atPod())
	return !ofPod
}

// atPod returns the address of the pod whose interface saw the packet, if it was that of a pod.
func (o *observation) atPod() netip.Addr {
	if o.input {
		return o.source.Addr()
	}
	return o.destination.Addr()
}
