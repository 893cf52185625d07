package nat

import (
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// asked returns the last request of the change that drains a backend of a mapping of an agent without draining: the one that asks where pads are.
func asked(t *testing.T, w *descriptor.World) (ask descriptor.Op, pads []local) {
	t.Helper()
	both, oneLeaves := webWith(t, 2, 2), webWith(t, 2, 0)
	ops, err := updateDNat(w, found(t, w, oneLeaves, represent(true, both.mappings[0].locals)), oneLeaves)
	if err != nil {
		t.Fatal(err)
	}
	for len(ops) > 0 {
		m, change := ops[0].Call.Msg.(*nat44_ed.Nat44LbStaticMappingAddDelLocal)
		if !change {
			return ops[0], pads
		}
		if m.IsAdd {
			pads = append(pads, local{addr: m.Local.Addr, port: m.Local.Port})
		}
		next := ops[0].Next
		if ops[0].Refuses != nil {
			if err := ops[0].Refuses(vpp.Reply{}); err != nil {
				t.Fatal(err)
			}
		}
		if ops[0].Then != nil {
			next = append(ops[0].Then(vpp.Reply{}), next...)
		}
		ops = append(slices.Clone(ops[1:]), next...)
	}
	t.Fatal("nothing is asked")
	return ask, pads
}

// TestAdoptionFollowsTheDump: the requests that drain a backend depend on where VPP has put the pads. If the dump does not show them, the change fails.
func TestAdoptionFollowsTheDump(t *testing.T) {
	two := webWith(t, 2, 2).mappings[0]
	a, b := two.locals[0], two.locals[1]
	for _, tc := range []struct {
		name   string
		shown  func(pads []local) []local // nil: no mapping
		fails  bool
		drains bool
	}{
		{"the mapping is gone", nil, true, false},
		{"another program has changed it", func([]local) []local { return represent(true, []local{a, b}) }, true, false},
		{"pads behind all", func(p []local) []local { return slices.Concat(p[:2], []local{a, b}, p[2:]) }, false, true},
		{"pads between", func(p []local) []local { return slices.Concat(p[:2], []local{a}, p[2:6], []local{b}, p[6:]) }, false, true},
	} {
		w := descriptor.NewWorld(descriptor.Options{}, func(string) any { return nil })
		ask, pads := asked(t, w)
		var r vpp.Reply
		if tc.shown != nil {
			d := &nat44_ed.Nat44LbStaticMappingDetails{ExternalAddr: two.id.addr(), ExternalPort: 80, Protocol: two.id.proto()}
			for _, l := range tc.shown(pads) {
				d.Locals = append(d.Locals, lbAddrPort(l))
			}
			r.Details = []api.Message{d}
		}
		err := ask.Refuses(r)
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err != nil {
			continue
		}
		changed := 0
		for _, op := range ask.Then(r) {
			if m := op.Call.Msg.(*nat44_ed.Nat44LbStaticMappingAddDelLocal); m.IsAdd && m.Local.Probability > 0 && m.Local.Addr[0] == 192 {
				changed++
			}
		}
		if (changed > 0) != tc.drains {
			t.Errorf("%s: %d pads get a weight", tc.name, changed)
		}
	}
}

// TestOneDumpForAll: the first mapping of a batch asks for all, the others for something small. If the dump fails, all of them fail, and the next one asks
// again.
func TestOneDumpForAll(t *testing.T) {
	w := descriptor.NewWorld(descriptor.Options{}, func(string) any { return nil })
	l := layoutsOf(w)
	m, other := webWith(t, 2, 2).mappings[0], webWith(t, 2, 2).mappings[0]
	other.id++
	first, second := m.readLayout(w, m, l.askOnce(m.id)), other.readLayout(w, other, l.askOnce(other.id))
	if !first.Call.Dump || second.Call.Dump {
		t.Errorf("the first is a dump: %t, the second %t", first.Call.Dump, second.Call.Dump)
	}
	first.Else()
	if second.Refuses(vpp.Reply{}) == nil {
		t.Error("a mapping is read without a dump")
	}
	if again := l.askOnce(m.id); !again.Dump {
		t.Error("no dump after one that failed")
	}
}
