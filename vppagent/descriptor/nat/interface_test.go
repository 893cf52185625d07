package nat

import (
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/arrange"
)

const podName = "pod1"

func podWorld() *descriptor.World {
	w := descriptor.NewWorld(descriptor.Options{}, nil)
	w.AddInterface(&descriptor.Iface{Index: 1, Name: podName})
	return w
}

// wanted are the arrangements that a value can want, and none.
func wanted() []arrange.Arrangement {
	return []arrange.Arrangement{{}, arrange.Regular(true, false, false), arrange.Regular(false, true, false), arrange.Regular(true, true, false), arrange.Regular(false, false, true), arrange.OfPod()}
}

// TestArrangementIsReadAtOnce: VPP forwards no packet of an interface between the requests that change its NAT44, because it reads all of them at once.
// The node of a pod's interface leaves before its role.
func TestArrangementIsReadAtOnce(t *testing.T) {
	both, none := arrange.Regular(true, true, false), arrange.Arrangement{}
	for _, c := range []struct {
		have, want arrange.Arrangement
		steps      []arrange.Step
	}{
		{none, both, []arrange.Step{{Part: arrange.Inside, On: true}, {Part: arrange.Outside, On: true}}},
		{both, none, []arrange.Step{{Part: arrange.Outside, On: false}, {Part: arrange.Inside, On: false}}},
		{none, arrange.OfPod(), []arrange.Step{{Part: arrange.Inside, On: true}, {Part: arrange.In2Out, On: false}, {Part: arrange.Classify, On: true}}},
		{arrange.OfPod(), none, []arrange.Step{{Part: arrange.Classify, On: false}, {Part: arrange.Inside, On: false}}},
		{arrange.OfPod(), both, []arrange.Step{{Part: arrange.Classify, On: false}, {Part: arrange.Outside, On: true}}},
	} {
		if steps := c.have.To(c.want); !slices.Equal(steps, c.steps) {
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
			steps := have.To(want)
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
						at = at.After(steps[i])
						undo = append(undo, op.Then(vpp.Reply{Msg: &nat44_ed.Nat44InterfaceAddDelFeatureReply{}})...)
					}
				}
				if n := len(at.To(arrange.Arrangement{})); len(undo) != n {
					t.Errorf("%+v → %+v, refused %b: %d requests follow, want %d", have, want, refused, len(undo), n)
				}
			}
		}
	}
}

// podCandidate is the value of one interface.
type podCandidate struct{ *natInterface }

func (c podCandidate) Wanted(string) any { return c.natInterface }

func (c podCandidate) Each(f func(key string, state any, wanted bool)) {
	f("key", c.natInterface, true)
}

// TestNodesOfDeletedInterface: an interface that VPP deleted between two dumps is not found, and is no error of all others. The nodes of the others
// count.
func TestNodesOfDeletedInterface(t *testing.T) {
	w := descriptor.NewWorld(descriptor.Options{}, nil)
	w.AddInterface(&descriptor.Iface{Index: 1, Name: podName, VPPName: podName, Tag: "default/web"})
	c := podCandidate{&natInterface{podName, arrange.OfPod()}}
	roles := vpp.Reply{Details: []api.Message{&nat44_ed.Nat44InterfaceDetails{SwIfIndex: 1, Flags: nat_types.NAT_IS_INSIDE}}}
	first := natInterfaceDumps(w, c, nil)
	all := natInterfaceDumps(w, c, descriptor.NewDump(first, []vpp.Reply{roles, {}}))
	if len(first) != 2 || len(all) != 3 {
		t.Fatalf("%d requests, then %d", len(first), len(all))
	}
	for _, tc := range []struct {
		answer vpp.Reply
		found  int
		fails  bool
	}{
		{vpp.Reply{Msg: &vlib.CliInbandReply{Reply: "\nip4-unicast:\n  nat44-ed-classify\n\nip4-output:\n  none configured\n"}}, 1, false},
		{vpp.Reply{Err: &vpp.Retval{Message: "cli_inband", Code: -1}}, 0, false},
		{vpp.Reply{Err: vpp.ErrDisconnected}, 1, true},
		{vpp.Reply{Msg: &vlib.CliInbandReply{Reply: "another VPP"}}, 1, true},
	} {
		found, err := retrieveNATInterfaces(w, descriptor.NewDump(all, []vpp.Reply{roles, {}, tc.answer}), c)
		if len(found) != tc.found || (err != nil) != tc.fails {
			t.Errorf("%+v: %+v, %v", tc.answer, found, err)
		}
		if !tc.fails && tc.found == 1 && *found[0].State.(*natInterface) != *c.natInterface {
			t.Errorf("found %+v", found[0].State)
		}
	}
}

// TestPodWaitsForForwarding: whatever a pod's interface wants, it waits while VPP does not forward as wanted. It would keep both roles if forwarding
// were wanted again.
func TestPodWaitsForForwarding(t *testing.T) {
	w := descriptor.NewWorld(descriptor.Options{}, nil)
	w.AddInterface(&descriptor.Iface{Index: 1, Name: podName, VPPName: podName, Tag: "default/web"})
	both := arrange.Regular(true, true, false)
	for _, want := range []arrange.Arrangement{arrange.OfPod(), both} {
		for _, have := range []any{&natInterface{podName, both}, &natInterface{podName, arrange.OfPod()}} {
			for _, global := range []any{nil, &nat44Global{}} {
				err := readyNATInterface(w, have, &natInterface{podName, want}, func(string) any { return global })
				if (err == nil) != (global != nil) {
					t.Errorf("%+v → %+v, certain %+v: %v", have, want, global, err)
				}
			}
		}
	}
}
