package nat

import (
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const podName = "pod1"

func podWorld() *descriptor.World {
	w := descriptor.NewWorld(descriptor.Options{}, nil)
	w.AddInterface(&descriptor.Iface{Index: 1, Name: podName})
	return w
}

// wanted are the arrangements that a value can want, and none.
func wanted() []arrangement {
	return []arrangement{{}, regular(true, false, false), regular(false, true, false), regular(true, true, false), regular(false, false, true), ofPod()}
}

// found are the arrangements that VPP can have: each combination of roles with each node up to two times.
func found() (out []arrangement) {
	for _, roles := range wanted()[:5] {
		for n := range uint8(27) {
			roles.nodes = [natNodeCount]uint8{n % 3, n / 3 % 3, n / 9}
			out = append(out, roles)
		}
	}
	return out
}

// TestArrangementsAreReached: the steps from any arrangement to any other end there; none removes a role that is not set, and the role inside is
// neither removed, nor joined by outside, while the node of both roles is on the arc without the role outside.
func TestArrangementsAreReached(t *testing.T) {
	for _, have := range found() {
		for _, want := range wanted() {
			steps := have.to(want)
			at := have
			for _, s := range steps {
				switch own := !at.outside && at.nodes[classifyNode] > 0; {
				case !s.on && (s.part == insideRole && !at.inside || s.part == outsideRole && !at.outside || s.part == outputFeature && !at.output):
					t.Errorf("%+v to %+v: %+v removes what is not set", have, want, steps)
				case own && want != regular(true, true, false) && (s == natStep{insideRole, false}), own && at.inside && have.nodes[classifyNode] < 2 && (s == natStep{outsideRole, true}):
					t.Errorf("%+v to %+v: %+v changes roles under the node", have, want, steps)
				}
				at = at.after(s)
			}
			if at != want {
				t.Errorf("%+v to %+v: %+v ends at %+v", have, want, steps, at)
			}
		}
	}
}

// TestArrangementIsReadAtOnce: VPP forwards no packet of an interface between the requests that change its NAT44, because it reads all of them at once.
// The node of a pod's interface leaves before its role.
func TestArrangementIsReadAtOnce(t *testing.T) {
	both, none := regular(true, true, false), arrangement{}
	for _, c := range []struct {
		have, want arrangement
		steps      []natStep
	}{
		{none, both, []natStep{{insideRole, true}, {outsideRole, true}}},
		{both, none, []natStep{{outsideRole, false}, {insideRole, false}}},
		{none, ofPod(), []natStep{{insideRole, true}, {in2outNode, false}, {classifyNode, true}}},
		{ofPod(), none, []natStep{{classifyNode, false}, {insideRole, false}}},
		{ofPod(), both, []natStep{{classifyNode, false}, {outsideRole, true}}},
	} {
		if steps := c.have.to(c.want); !slices.Equal(steps, c.steps) {
			t.Errorf("%+v → %+v: %+v, want %+v", c.have, c.want, steps, c.steps)
		}
		ops, err := rearrange(podWorld(), podName, c.have, c.want)
		if err != nil {
			t.Fatal(err)
		}
		for i, op := range ops {
			if op.Call.Joined != (i < len(ops)-1) || op.Call.AtOnce != (i == 0) {
				t.Errorf("%+v → %+v: request %d: joined %t, at once %t", c.have, c.want, i, op.Call.Joined, op.Call.AtOnce)
			}
		}
	}
}

// TestRefusedArrangementLeaves: whichever of the requests VPP refuses, the requests that follow remove NAT44 from the interface.
func TestRefusedArrangementLeaves(t *testing.T) {
	for _, want := range wanted()[3:] {
		for _, have := range wanted() {
			steps := have.to(want)
			for refused := 1; refused < 1<<len(steps) && len(steps) > 1; refused++ {
				ops, err := rearrange(podWorld(), podName, have, want)
				if err != nil {
					t.Fatal(err)
				}
				at := have
				var undo []descriptor.Op
				for i, op := range ops {
					if refused>>i&1 == 1 {
						undo = append(undo, op.Else()...)
					} else {
						at = at.after(steps[i])
						undo = append(undo, op.Then(vpp.Reply{Msg: &nat44_ed.Nat44InterfaceAddDelFeatureReply{}})...)
					}
				}
				if n := len(at.to(arrangement{})); len(undo) != n {
					t.Errorf("%+v → %+v, refused %b: %d requests follow, want %d", have, want, refused, len(undo), n)
				}
			}
		}
	}
}
