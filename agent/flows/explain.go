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
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Loop is what a watcher needs of an agent.
type Loop struct {
	Do     func(context.Context, ...vpp.Call) []vpp.Reply
	InLoop func(context.Context, func()) error
	// The rest is called in the loop.
	Objects  func() []model.Object
	Policies *policy.Processor // nil: policies are not enforced
	Sent     func(key string) proto.Message
}

// droppedBy reads a drop: its text, whether an access list dropped the packet, and whether that was at an interface's input.
func droppedBy(node, text string) (why string, byList, input bool) {
	if node == "" {
		return "unknown reason", false, false
	}
	rest, byList := strings.CutPrefix(node, "acl-plugin-")
	return node + ": " + text, byList && strings.HasPrefix(text, "ACL deny"), strings.HasPrefix(rest, "in-")
}

// explain returns the flows of observations; in the loop.
func (w *Watcher) explain(l *Loop, seen []observation) []flows.Flow {
	n := newNames(l, seen)
	w.rules.dropUnused()
	now := w.Now()
	out := make([]flows.Flow, 0, len(seen))
	for i := range seen {
		o := &seen[i]
		f := flows.Flow{
			First: now, Last: now, Node: w.Node, Source: n.peers[o.source.Addr()], Destination: n.peers[o.destination.Addr()],
			Protocol: model.Protocol(o.protocol).String(), Verdict: flows.Allowed, Translation: o.translation, Counts: o.counts, SeenBy: o.seenBy,
		}
		if p := n.peers[o.dialled().Addr()]; p.Kind == flows.Service {
			f.Translation.Service = p.Namespace + "/" + p.Name
		}
		if hasPorts(o.protocol) {
			f.SourcePort, f.Port = o.source.Port(), o.destination.Port()
		}
		switch {
		case o.seenBy == BySessions && n.isRepeated(o):
			continue
		case o.dropped != "":
			f.Verdict = flows.Dropped
		}
		w.findDecision(l, n, o, &f)
		out = append(out, f)
	}
	return out
}

func hasPorts(protocol uint8) bool {
	return protocol == space.TCP || protocol == space.UDP || protocol == space.SCTP
}

// findDecision finds the rule that decided about an observation.
func (w *Watcher) findDecision(l *Loop, n *names, o *observation, f *flows.Flow) {
	f.Decision.Text = o.dropped
	if l.Policies == nil || o.dropped != "" && !o.byList {
		return
	}
	h := space.Header{Src: o.source.Addr(), Dst: o.destination.Addr(), Protocol: o.protocol, SrcPort: o.source.Port(), DstPort: o.destination.Port(), Flags: o.flags}
	if o.dropped == "" && o.protocol == space.TCP {
		h.Flags = space.SYN
	}
	if o.translation != nil { // the sender's list sees what it dialled
		h.Dst, h.DstPort = o.translation.Dialled.Addr(), o.translation.Dialled.Port()
	}
	for _, iface := range n.interfaces(o) {
		r, ok := w.rules.reasonOf(l, iface, !o.input, h)
		if !ok || r.Denied != (o.dropped != "") {
			continue
		}
		f.Decision = flows.Decision{Text: r.Text, Tier: r.Tier, Rule: r.Rule}
		if r.Policy != (model.Ref{}) {
			f.Decision.Policy = r.Policy.String()
		}
		if f.Direction = "ingress"; r.Egress || !r.Decides && o.input {
			f.Direction = "egress"
		}
		return
	}
}

// names are the objects at the addresses of some observations.
type names struct {
	peers   map[netip.Addr]flows.Peer
	ifaces  map[netip.Addr]string // of local pods
	outside []string
}

// newNames looks the addresses up; in the loop.
func newNames(l *Loop, seen []observation) *names {
	n := &names{peers: map[netip.Addr]flows.Peer{}, ifaces: map[netip.Addr]string{}}
	for i := range seen {
		for _, a := range []netip.Addr{seen[i].source.Addr(), seen[i].destination.Addr(), seen[i].dialled().Addr()} {
			n.peers[a] = flows.Peer{Kind: flows.Outside, Address: a}
		}
	}
	byPod := map[string]string{}
	if l.Policies != nil {
		n.outside = l.Policies.OutsideInterfaces()
		for iface, pod := range l.Policies.PodsByInterface() {
			byPod[pod] = iface
		}
	}
	for _, object := range l.Objects() {
		switch o := object.(type) {
		case *model.Pod:
			if o.Finished || o.HostNetwork {
				continue
			}
			n.nameAddrs(podPeer(o), o.IPs...)
			if iface := byPod[o.ID.String()]; iface != "" {
				for _, a := range o.IPs {
					n.ifaces[a] = iface
				}
			}
		case *model.Service:
			p := flows.Peer{Kind: flows.Service, Namespace: o.ID.Namespace, Name: o.ID.Name}
			n.nameAddrs(p, o.ClusterIPs...)
			n.nameAddrs(p, o.ExternalIPs...)
			for _, lb := range o.LoadBalancerIPs {
				n.nameAddrs(p, lb.Addr)
			}
		case *model.Node:
			n.nameAddrs(flows.Peer{Kind: flows.Node, Name: o.Name}, o.Addrs()...)
		}
	}
	return n
}

func podPeer(p *model.Pod) flows.Peer {
	return flows.Peer{Kind: flows.Pod, Namespace: p.ID.Namespace, Name: p.ID.Name, Workload: class.Workload(p), Node: p.NodeName, Labels: p.Labels}
}

func (n *names) nameAddrs(p flows.Peer, at ...netip.Addr) {
	for _, a := range at {
		if was, wanted := n.peers[a]; wanted && (was.Kind == flows.Outside || p.Kind == flows.Pod) {
			p.Address = a
			n.peers[a] = p
		}
	}
}

// isRepeated reports whether a session is not the one at the interface of a local pod that made it: other interfaces repeat it.
func (n *names) isRepeated(o *observation) bool {
	at := o.destination.Addr()
	if o.input {
		at = o.source.Addr()
	}
	return n.ifaces[at] == ""
}

// interfaces returns the interfaces whose lists may have decided: that of the local pod, or those that lead elsewhere.
func (n *names) interfaces(o *observation) []string {
	at := o.destination.Addr()
	if o.input {
		at = o.source.Addr()
	}
	if iface := n.ifaces[at]; iface != "" {
		return []string{iface}
	}
	return n.outside
}
