package nat

import (
	"fmt"
	"slices"

	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// arrangement is NAT44 on an interface as VPP has it: roles or the output feature, which are records, and graph nodes, which packets meet
// (nat44_ed_add_interface, nat44_ed_add_output_interface, VPP 24.06 to 26.06).
//
//	inside               nat-pre-in2out
//	outside              nat-pre-out2in
//	inside and outside   nat44-ed-classify
//	output feature       nat-pre-out2in, and a node on the output arc
//	ofPod: inside        nat44-ed-classify
type arrangement struct {
	inside, outside, output bool
	nodes                   [natNodeCount]uint8 // how often each is on the arc ip4-unicast
}

// part is a part of an arrangement that one request adds or removes.
type part uint8

const (
	classifyNode part = iota // the nodes, as indices of arrangement.nodes
	out2inNode
	in2outNode
	insideRole
	outsideRole
	outputFeature

	natNodeCount = 3
)

// natStep adds or removes a part.
type natStep struct {
	part
	on bool
}

// regular is the arrangement that VPP makes of roles, or of the output feature.
func regular(inside, outside, output bool) (a arrangement) {
	for i, on := range []bool{inside, outside, output} {
		if on {
			a = a.after(natStep{insideRole + part(i), true})
		}
	}
	return a
}

// ofPod is the arrangement of a pod's interface that translates like both roles. VPP notes each mapping for each interface that is outside, and
// searches all notes for each mapping: up to 32 ms for one message (docs/stalls.md). Packets from the interface meet the node of both roles. The
// role outside has no other effect there while forwarding is enabled: VPP does not read which interface a destination is behind
// (nat44_ed_not_translate), and the uplink is outside, too.
func ofPod() arrangement {
	return arrangement{inside: true, nodes: [natNodeCount]uint8{classifyNode: 1}}
}

// after is the arrangement after VPP has carried out steps. A node that is not on the arc can be removed, to no effect.
func (a arrangement) after(steps ...natStep) arrangement {
	put := func(n part, on bool) {
		switch {
		case on:
			a.nodes[n]++
		case a.nodes[n] > 0:
			a.nodes[n]--
		}
	}
	for _, s := range steps {
		own, other, has, hasOther := in2outNode, out2inNode, &a.inside, a.outside
		if s.part == outsideRole {
			own, other, has, hasOther = out2inNode, in2outNode, &a.outside, a.inside
		}
		switch {
		case s.part < natNodeCount:
			put(s.part, s.on)
		case s.part == outputFeature:
			a.output = s.on
			put(out2inNode, s.on)
		case *has == s.on:
		case hasOther:
			*has = s.on
			put(classifyNode, s.on)
			put(other, !s.on)
		default:
			*has = s.on
			put(own, s.on)
		}
	}
	return a
}

// to returns the steps to another arrangement: those of the roles, which take and leave nodes, and those that correct the nodes. A superfluous node is
// removed before the roles are: VPP would leave it on the arc, and packets would meet it without the ports that reassembly finds.
func (a arrangement) to(want arrangement) []natStep {
	roles := a.roleSteps(want)
	end := a.after(roles...)
	var steps []natStep
	for n := range part(natNodeCount) {
		for range min(int(a.nodes[n]), int(end.nodes[n])-int(want.nodes[n])) {
			steps = append(steps, natStep{n, false})
		}
	}
	steps = append(steps, roles...)
	end = a.after(steps...)
	for _, on := range []bool{false, true} {
		for n := range part(natNodeCount) {
			for end.nodes[n] != want.nodes[n] && on == (end.nodes[n] < want.nodes[n]) {
				steps = append(steps, natStep{n, on})
				end = end.after(natStep{n, on})
			}
		}
	}
	return steps
}

// roleSteps adds missing roles before it removes superfluous ones, so that a packet always meets NAT. Between the two features it removes first,
// because VPP refuses both. It removes only roles that are set: removing another one orphans a node in VPP for good
// (nat44_interface_add_del_feature, VPP 24.06).
//
// An interface is never outside alone: nat44-ed would make a session for every flow that it forwards there, and translate the answers for as
// long as the flow lasts (nat44_ed_not_translate, VPP 25.10).
func (a arrangement) roleSteps(want arrangement) []natStep {
	var add, del []natStep
	if want.inside && !a.inside {
		add = append(add, natStep{insideRole, true})
	}
	if want.outside && !a.outside {
		add = append(add, natStep{outsideRole, true})
	}
	if a.outside && !want.outside {
		del = append(del, natStep{outsideRole, false})
	}
	if a.inside && !want.inside {
		del = append(del, natStep{insideRole, false})
	}
	switch {
	case want.output && !a.output:
		return append(del, natStep{outputFeature, true})
	case a.output && !want.output:
		return append([]natStep{{outputFeature, false}}, add...)
	}
	return append(add, del...)
}

// requests are the requests of steps. VPP reads them at once: no packet meets a state in between, if VPP has no workers.
func requests(w *descriptor.World, idx interface_types.InterfaceIndex, steps []natStep) []descriptor.Op {
	ops := make([]descriptor.Op, len(steps))
	for i, s := range steps {
		ops[i] = s.request(w, idx)
		ops[i].Call.Joined = i < len(steps)-1
		ops[i].Call.AtOnce = i == 0 && len(steps) > 1
	}
	return ops
}

func (s natStep) request(w *descriptor.World, idx interface_types.InterfaceIndex) descriptor.Op {
	role := func(flag nat_types.NatConfigFlags) vpp.Call {
		return descriptor.Write(&nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: s.on, Flags: flag, SwIfIndex: idx})
	}
	op := descriptor.Op{Gone: !s.on}
	switch s.part {
	case insideRole:
		op.Call = role(nat_types.NAT_IS_INSIDE)
	case outsideRole:
		op.Call = role(nat_types.NAT_IS_OUTSIDE)
		if n := mappingsInVPP(w); n > 0 {
			op.Cost, op.Apart = w.Cost.OutsideInterface(n), apartOutside
		}
	case outputFeature:
		op.Call = descriptor.Write(&nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: s.on, SwIfIndex: idx})
	default:
		op.Call = descriptor.Write(&feature.FeatureEnableDisable{SwIfIndex: idx, Enable: s.on, ArcName: inputArc, FeatureName: nodeName(w, s.part)})
	}
	return op
}

// allOrNone makes NAT44 leave the interface if VPP refuses one of several requests: a part of an arrangement is another NAT, whose sessions last.
// The agent retries.
func allOrNone(w *descriptor.World, idx interface_types.InterfaceIndex, a arrangement, steps []natStep) []descriptor.Op {
	ops := requests(w, idx, steps)
	if len(ops) < 2 {
		return ops
	}
	refused := false
	for i, s := range steps {
		answered := func(accepted bool) []descriptor.Op {
			if refused = refused || !accepted; accepted {
				a = a.after(s)
			}
			if !refused || i < len(steps)-1 {
				return nil
			}
			return requests(w, idx, a.to(arrangement{}))
		}
		ops[i].Then = func(vpp.Reply) []descriptor.Op { return answered(true) }
		ops[i].Else = func() []descriptor.Op { return answered(false) }
	}
	return ops
}

const inputArc = "ip4-unicast"

// nodeNames are the names of a node without and with several workers: then it passes packets to their workers.
func nodeNames(n part) [2]string {
	return [natNodeCount][2]string{
		classifyNode: {"nat44-ed-classify", "nat44-handoff-classify"}, out2inNode: {"nat-pre-out2in", "nat44-out2in-worker-handoff"},
		in2outNode: {"nat-pre-in2out", "nat44-in2out-worker-handoff"},
	}[n]
}

func nodeName(w *descriptor.World, n part) string {
	if w.Workers > 1 {
		return nodeNames(n)[1]
	}
	return nodeNames(n)[0]
}

// shown reports that the agent asks VPP for the nodes of an interface with NAT44: they do not follow from its roles. If an interface without the tag of
// a pod has the role inside alone, the tag may have changed.
func shown(i *descriptor.Iface, a arrangement) bool {
	return i.Nameable() && (i.NamesPod() || a.inside && !a.outside)
}

// nodesShown counts the nodes in an answer to descriptor.ShowFeatures.
func nodesShown(r vpp.Reply) (counts [natNodeCount]uint8, _ error) {
	arcs, err := descriptor.NodesOn(r)
	if err != nil {
		return counts, err
	}
	list, ok := arcs[inputArc]
	if !ok {
		return counts, fmt.Errorf("VPP does not show the nodes on %s", inputArc)
	}
	for n := range part(natNodeCount) {
		for _, name := range list {
			if names := nodeNames(n); slices.Contains(names[:], name) {
				counts[n]++
			}
		}
	}
	return counts, nil
}
