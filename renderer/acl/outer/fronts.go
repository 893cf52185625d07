package outer

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// nat44 hides a pod that sends SCTP behind the address of a node, or of a Service that the receiver dialled, even if a list drops that packet. SCTP that
// the receiver sends to this address reaches the pod, whatever the receiver's egress says about the pod. So if rules about a pod's egress match
// destinations, its input denies SCTP to these addresses. nat44 serves no SCTP there; SCTP of the nodes themselves is lost.

// fixFronts writes both tables.
func (g *Evaluator) fixFronts() {
	services, nodes := g.pods.Node.Fronts()
	for _, t := range []struct {
		name, what string
		fronts     []netip.Prefix
	}{{table.ServiceFronts, "a Service", services}, {table.NodeFronts, "a node", nodes}} {
		now := &table.Table{Name: t.name}
		cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "a protocol that nat44 does not translate, to an address of " + t.what + ": any pod may be behind it, and policies of the pod ask"}
		for _, p := range t.fronts {
			for _, proto := range []uint8{match.SCTP, match.UDPLite} {
				now.Add(match.Atom{Verb: match.Deny, Src: match.V4.All(), Dst: p, Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
			}
		}
		if had := len(lists.Filled(g.pods.Store, t.name)) > 0; had != (len(now.Rules) > 0) {
			g.pods.RelistEgress()
		}
		g.pods.Store.Fix(now)
	}
}

// Fronts returns the places that come before a program's tables: see fixFronts. They decide about packets to addresses that no other hook
// evaluates.
func (g *Evaluator) Fronts(p *endpoint.Program) []lists.Place {
	if !p.Closes() || !p.Steps.AsksHosts() {
		return nil
	}
	list := append(lists.Filled(g.pods.Store, table.ServiceFronts), lists.Filled(g.pods.Store, table.NodeFronts)...)
	for k := range list {
		list[k].Repeats = true
	}
	return list
}

// InFrontOf returns a list with other places in front, behind noSCTP.
func InFrontOf(list, others []lists.Place) []lists.Place {
	rest, _ := lists.Tracked(list)
	return slices.Concat(list[:len(list)-len(rest)], others, rest)
}

// IsFront reports whether a place is one of Fronts.
func IsFront(p lists.Place) bool {
	return p.Table == table.ServiceFronts || p.Table == table.NodeFronts
}

// NoteFronts notes the rules of pods that allow SCTP to a network with an address of nodes behind which nat44 hides pods.
func (g *Evaluator) NoteFronts(seg *table.Segment, note func(c *match.Clause, format string, args ...any)) {
	if !seg.Scope.Egress || seg.Host || seg.Answers {
		return
	}
	_, nodes := g.pods.Node.Fronts()
	for i := range seg.Clauses {
		if c := &seg.Clauses[i]; c.AllowsSCTPTo(nodes) {
			note(c, "allows SCTP to addresses of nodes: with nat44 any pod may be behind them, so SCTP to them is denied")
		}
	}
}
