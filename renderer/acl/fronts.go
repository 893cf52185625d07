package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// nat44 hides a pod that sends SCTP behind the address of a node, or of a Service that the receiver dialled, even if a list drops that packet. SCTP that
// the receiver sends to this address reaches the pod, whatever the receiver's egress says about the pod. So if rules about a pod's egress match
// destinations, its input denies SCTP to these addresses. nat44 serves no SCTP there; SCTP of the nodes themselves is lost.

// Names of the tables that deny SCTP to Services and to nodes. All pods share them.
const (
	serviceFronts = "service-fronts"
	nodeFronts    = "node-fronts"
)

// fixFronts writes both tables.
func fixFronts(r *Renderer) {
	services, nodes := r.node.Fronts()
	for _, t := range []struct {
		name, what string
		fronts     []netip.Prefix
	}{{serviceFronts, "a Service", services}, {nodeFronts, "a node", nodes}} {
		now := &table{name: t.name}
		cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "a protocol that nat44 does not translate, to an address of " + t.what + ": any pod may be behind it, and policies of the pod ask"}
		for _, p := range t.fronts {
			for _, proto := range []uint8{match.SCTP, match.UDPLite} {
				now.add(match.Atom{Verb: match.Deny, Src: match.V4.All(), Dst: p, Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
			}
		}
		if had := len(r.optional(t.name)) > 0; had != (len(now.rules) > 0) {
			r.relistEgress()
		}
		r.fixTable(now)
	}
}

// frontPlaces returns the places that come before a program's tables: see fixFronts. They decide about packets to addresses that no other hook
// evaluates.
func frontPlaces(r *Renderer, p *program) []place {
	if !p.closes() || !p.steps.AsksHosts() {
		return nil
	}
	list := append(r.optional(serviceFronts), r.optional(nodeFronts)...)
	for k := range list {
		list[k].repeats = true
	}
	return list
}

// inFront returns a list with other places in front, behind noSCTP.
func inFront(list, others []place) []place {
	rest, _ := tracked(list)
	return slices.Concat(list[:len(list)-len(rest)], others, rest)
}

// isFront reports whether a place is one of frontPlaces.
func isFront(p place) bool { return p.table == serviceFronts || p.table == nodeFronts }

// noteFronts notes the rules of pods that allow SCTP to a network with an address of nodes behind which nat44 hides pods.
func noteFronts(r *Renderer, seg *segment, note func(c *match.Clause, format string, args ...any)) {
	if !seg.scope.egress || seg.host || seg.answers {
		return
	}
	_, nodes := r.node.Fronts()
	for i := range seg.clauses {
		if c := &seg.clauses[i]; c.AllowsSCTPTo(nodes) {
			note(c, "allows SCTP to addresses of nodes: with nat44 any pod may be behind them, so SCTP to them is denied")
		}
	}
}
