// Package arrange turns a wanted arrangement of NAT44 on an interface into the steps from the one that VPP has. It predicts what VPP makes of each
// step.
//
// Invariant: the steps from any arrangement end at the wanted one, and none removes a role that is not set.
package arrange

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

// Arrangement is NAT44 on an interface as VPP has it: roles or the output feature, which are records, and graph nodes, which packets meet
// (nat44_ed_add_interface, nat44_ed_add_output_interface, VPP 24.06 to 26.06).
//
//	inside               nat-pre-in2out
//	outside              nat-pre-out2in
//	inside and outside   nat44-ed-classify
//	output feature       nat-pre-out2in, and a node on the output arc
//	OfPod: inside        nat44-ed-classify
type Arrangement struct {
	Inside, Outside, Output bool
	Nodes                   [nodeCount]uint8 // how often each node is on the arc ip4-unicast
}

// Part is a part of an Arrangement that one request adds or removes.
type Part uint8

// The parts: nodes, as indices of Arrangement.Nodes, then records.
const (
	Classify Part = iota
	Out2In
	In2Out
	Inside
	Outside
	Output

	nodeCount = 3
)

// Step adds or removes a part.
type Step struct {
	Part
	On bool
}

// Regular is the Arrangement that VPP makes of roles, or of the output feature.
func Regular(inside, outside, output bool) (a Arrangement) {
	for i, on := range []bool{inside, outside, output} {
		if on {
			a = a.After(Step{Inside + Part(i), true})
		}
	}
	return a
}

// OfPod is the Arrangement of a pod's interface that translates like both roles. VPP notes each mapping for each interface that is outside, and
// searches all notes for each mapping: up to 32 ms for one message (docs/stalls.md). Packets from the interface meet the node of both roles. The
// role outside has no other effect there while forwarding is enabled: VPP does not read which interface a destination is behind
// (nat44_ed_not_translate), and the uplink is outside, too.
func OfPod() Arrangement {
	return Arrangement{Inside: true, Nodes: [nodeCount]uint8{Classify: 1}}
}

// After is the Arrangement after VPP has carried out steps. A node that is not on the arc can be removed, to no effect.
func (a Arrangement) After(steps ...Step) Arrangement {
	put := func(n Part, on bool) {
		switch {
		case on:
			a.Nodes[n]++
		case a.Nodes[n] > 0:
			a.Nodes[n]--
		}
	}
	for _, s := range steps {
		own, other, has, hasOther := In2Out, Out2In, &a.Inside, a.Outside
		if s.Part == Outside {
			own, other, has, hasOther = Out2In, In2Out, &a.Outside, a.Inside
		}
		switch {
		case s.Part < nodeCount:
			put(s.Part, s.On)
		case s.Part == Output:
			a.Output = s.On
			put(Out2In, s.On)
		case *has == s.On:
		case hasOther:
			*has = s.On
			put(Classify, s.On)
			put(other, !s.On)
		default:
			*has = s.On
			put(own, s.On)
		}
	}
	return a
}

// To returns the steps to another Arrangement: those of the roles, which take and leave nodes, and those that correct the nodes. A superfluous node is
// removed before the roles are: VPP would leave it on the arc, and packets would meet it without the ports that reassembly finds.
func (a Arrangement) To(want Arrangement) []Step {
	roles := a.roleSteps(want)
	end := a.After(roles...)
	var steps []Step
	for n := range Part(nodeCount) {
		for range min(int(a.Nodes[n]), int(end.Nodes[n])-int(want.Nodes[n])) {
			steps = append(steps, Step{n, false})
		}
	}
	steps = append(steps, roles...)
	end = a.After(steps...)
	for _, on := range []bool{false, true} {
		for n := range Part(nodeCount) {
			for end.Nodes[n] != want.Nodes[n] && on == (end.Nodes[n] < want.Nodes[n]) {
				steps = append(steps, Step{n, on})
				end = end.After(Step{n, on})
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
func (a Arrangement) roleSteps(want Arrangement) []Step {
	var add, del []Step
	if want.Inside && !a.Inside {
		add = append(add, Step{Inside, true})
	}
	if want.Outside && !a.Outside {
		add = append(add, Step{Outside, true})
	}
	if a.Outside && !want.Outside {
		del = append(del, Step{Outside, false})
	}
	if a.Inside && !want.Inside {
		del = append(del, Step{Inside, false})
	}
	switch {
	case want.Output && !a.Output:
		return append(del, Step{Output, true})
	case a.Output && !want.Output:
		return append([]Step{{Output, false}}, add...)
	}
	return append(add, del...)
}

const inputArc = "ip4-unicast"

// nodeNames are the names of a node without and with several workers: then it passes packets to their workers.
func nodeNames(n Part) [2]string {
	return [nodeCount][2]string{
		Classify: {"nat44-ed-classify", "nat44-handoff-classify"}, Out2In: {"nat-pre-out2in", "nat44-out2in-worker-handoff"},
		In2Out: {"nat-pre-in2out", "nat44-in2out-worker-handoff"},
	}[n]
}

// nodeName is the name of a node in a VPP with so many NAT workers.
func nodeName(n Part, workers int) string {
	if workers > 1 {
		return nodeNames(n)[1]
	}
	return nodeNames(n)[0]
}

// Call is the request of a step on an interface, in a VPP with so many NAT workers.
func (s Step) Call(idx interface_types.InterfaceIndex, workers int) vpp.Call {
	role := func(flag nat_types.NatConfigFlags) vpp.Call {
		return descriptor.Write(&nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: s.On, Flags: flag, SwIfIndex: idx})
	}
	switch s.Part {
	case Inside:
		return role(nat_types.NAT_IS_INSIDE)
	case Outside:
		return role(nat_types.NAT_IS_OUTSIDE)
	case Output:
		return descriptor.Write(&nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: s.On, SwIfIndex: idx})
	}
	return descriptor.Write(&feature.FeatureEnableDisable{SwIfIndex: idx, Enable: s.On, ArcName: inputArc, FeatureName: nodeName(s.Part, workers)})
}

// NodesOf are the nodes that packets of an interface meet, in a VPP with so many NAT workers.
func (a Arrangement) NodesOf(workers int) (out []descriptor.Node) {
	const like = "nat"
	for n := range Part(nodeCount) {
		if a.Nodes[n] > 0 {
			out = append(out, descriptor.Node{Arc: inputArc, Name: nodeName(n, workers), Like: like})
		}
	}
	if a.Output {
		node := descriptor.Node{Arc: "ip4-output", Name: "nat-pre-in2out-output", Like: like}
		if workers > 1 {
			node.Name = "nat44-in2out-output-worker-handoff"
		}
		out = append(out, node)
	}
	return out
}

// NodesShown counts the nodes in an answer to descriptor.ShowFeatures.
func NodesShown(r vpp.Reply) (counts [nodeCount]uint8, _ error) {
	arcs, err := descriptor.NodesOn(r)
	if err != nil {
		return counts, err
	}
	list, ok := arcs[inputArc]
	if !ok {
		return counts, fmt.Errorf("VPP does not show the nodes on %s", inputArc)
	}
	for n := range Part(nodeCount) {
		for _, name := range list {
			if names := nodeNames(n); slices.Contains(names[:], name) {
				counts[n]++
			}
		}
	}
	return counts, nil
}
