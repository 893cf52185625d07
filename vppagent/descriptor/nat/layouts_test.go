package nat

import (
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/drain"
)

// webWith compiles a mapping with backends 10.1.1.1, 10.1.1.2, … of these probabilities.
func webWith(t *testing.T, probabilities ...uint32) *dnat {
	t.Helper()
	m := &nat.DNat44_StaticMapping{ExternalIp: "10.96.0.1", ExternalPort: 80}
	for i, p := range probabilities {
		m.LocalIps = append(m.LocalIps, &nat.DNat44_StaticMapping_LocalIP{LocalIp: "10.1.1." + string(rune('1'+i)), LocalPort: 80, Probability: p})
	}
	d, err := compileDNat(kv.DNat44Key("web"), &nat.DNat44{Label: "web", StMappings: []*nat.DNat44_StaticMapping{m}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// found retrieves a mapping that VPP has with these locals.
func found(t *testing.T, w *descriptor.World, want *dnat, locals []local) *dnat {
	t.Helper()
	m := want.mappings[0]
	d := &nat44_ed.Nat44LbStaticMappingDetails{ExternalAddr: m.id.addr(), ExternalPort: 80, Protocol: m.id.proto(), Flags: m.flags, Tag: m.tag}
	for _, l := range locals {
		d.Locals = append(d.Locals, lbAddrPort(l))
	}
	out, err := retrieveDNat(w, descriptor.NewDump(dnatDumps(w, nil), []vpp.Reply{{Details: []api.Message{d}}, {}, {}}), only{want})
	if err != nil || len(out) != 1 {
		t.Fatalf("found %+v, %v", out, err)
	}
	return out[0].State.(*dnat)
}

// requestsTo are all requests of a change, as text: + or − and the port of a pad, or the last byte of a backend's address.
func requestsTo(t *testing.T, w *descriptor.World, have, want *dnat) (out []string) {
	t.Helper()
	ops, err := updateDNat(w, have, want)
	if err != nil {
		t.Fatal(err)
	}
	for len(ops) > 0 {
		switch m := ops[0].Call.Msg.(type) {
		case *nat44_ed.Nat44AddDelLbStaticMapping:
			out = append(out, map[bool]string{true: "made", false: "removed"}[m.IsAdd])
		case *nat44_ed.Nat44LbStaticMappingAddDelLocal:
			what := "backend"
			if m.Local.Addr[0] == 192 {
				what = "pad"
			}
			out = append(out, map[bool]string{true: "+", false: "-"}[m.IsAdd]+what)
		}
		ops = append(slices.Clone(ops[0].Next), ops[1:]...)
	}
	return out
}

// TestRestartsFindDrains: an agent that starts adopts what VPP has, also from an agent without draining, and ends no connection.
func TestRestartsFindDrains(t *testing.T) {
	both, oneLeaves, one := webWith(t, 2, 2), webWith(t, 2, 0), webWith(t, 2)
	a, b := both.mappings[0].locals[0], both.mappings[0].locals[1]
	fresh := drain.New(toDrain([]local{a, b}))
	plan, ok := fresh.To(drain.Goal{Taking: toDrain([]local{a}), Drained: toDrain([]local{b})})
	if !ok {
		t.Fatal("no plan")
	}
	drained := allFromDrain(plan.After)
	adopted := append([]string{"-pad", "+pad", "-pad", "+pad"}, slices.Repeat([]string{"+pad"}, 12)...) // and the rest when a dump has shown where they are
	for _, tc := range []struct {
		name   string
		locals []local
		want   *dnat
		equal  bool
		sent   []string
	}{
		{"a new mapping", allFromDrain(fresh), both, true, nil},
		{"a drained backend that is wanted so", drained, oneLeaves, true, nil},
		{"a drained backend that returns", drained, both, false, []string{"-pad", "+pad"}},
		{"a drained backend that leaves", drained, one, false, []string{"-pad", "+pad", "-backend", "+pad"}},
		{"a backend that is to be drained", allFromDrain(fresh), oneLeaves, false, []string{"-pad", "+pad"}},
		{"a backend that VPP does not have is not added to be drained", allFromDrain(drain.New(toDrain([]local{a}))), oneLeaves, true, nil},
		{"made without draining", represent(true, []local{a, b}), both, true, nil},
		{"made without draining, a backend leaves", represent(true, []local{a, b}), oneLeaves, false, adopted},
		{"made without draining, a backend gets another weight", represent(true, []local{a, b}), webWith(t, 2, 1), false, adopted},
		{"made without draining, a backend is removed", represent(true, []local{a, b}), one, false, []string{"-backend"}},
		{"cut off within a change: a slot is free", slices.Delete(slices.Clone(drained), 4, 5), oneLeaves, false, slices.Concat([]string{"-pad", "+pad"}, adopted[2:])},
	} {
		w := descriptor.NewWorld(descriptor.Options{}, func(string) any { return nil })
		have := found(t, w, tc.want, tc.locals)
		if equalDNat(have, tc.want) != tc.equal {
			t.Errorf("%s: equal is %t: %+v", tc.name, !tc.equal, have.mappings)
		}
		if sent := requestsTo(t, w, have, tc.want); !slices.Equal(sent, tc.sent) {
			t.Errorf("%s: %q, want %q", tc.name, sent, tc.sent)
		}
	}
}

// TestLayoutsEndWithTheirMappings: the layout of a removed mapping is not kept, nor that of one that a dump no longer has.
func TestLayoutsEndWithTheirMappings(t *testing.T) {
	both := webWith(t, 2, 2)
	old := represent(true, both.mappings[0].locals) // without draining, which has to be kept in mind
	for name, end := range map[string]func(w *descriptor.World, have *dnat){
		"removed": func(w *descriptor.World, have *dnat) {
			ops := removeMapping(w, have.mappings[0])
			ops[len(ops)-1].Then(vpp.Reply{})
		},
		"not in a dump": func(w *descriptor.World, _ *dnat) {
			if _, err := retrieveDNat(w, descriptor.NewDump(dnatDumps(w, nil), []vpp.Reply{{}, {}, {}}), only{both}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		w := descriptor.NewWorld(descriptor.Options{}, func(string) any { return nil })
		have := found(t, w, both, old)
		if n := len(layoutsOf(w).of); n != 1 {
			t.Fatalf("%s: %d layouts before", name, n)
		}
		if end(w, have); len(layoutsOf(w).of) > 0 {
			t.Errorf("%s: %v is left", name, layoutsOf(w).of)
		}
	}
}

// TestDrainsAreCounted: an endpoint counts when VPP has accepted the last request of its drain, and as lost if the mapping is made anew.
func TestDrainsAreCounted(t *testing.T) {
	both, oneLeaves := webWith(t, 2, 2), webWith(t, 2, 0)
	locals := allFromDrain(drain.New(toDrain(both.mappings[0].locals)))
	anew := webWith(t, 2, 0)
	anew.mappings[0].tag = "of another label"
	for _, tc := range []struct {
		name          string
		want          *dnat
		drained, lost int
	}{{"drained", oneLeaves, 1, 0}, {"made anew", anew, 0, 1}, {"nothing drains", webWith(t, 2), 0, 0}} {
		drained, lost := 0, 0
		w := descriptor.NewWorld(descriptor.Options{NATDrained: func(d, l int) { drained, lost = drained+d, lost+l }}, func(string) any { return nil })
		have := found(t, w, both, locals)
		ops, err := updateDNat(w, have, tc.want)
		if err != nil {
			t.Fatal(err)
		}
		if drained+lost > 0 {
			t.Errorf("%s: %d and %d are counted before VPP has accepted anything", tc.name, drained, lost)
		}
		for len(ops) > 0 {
			next := ops[0].Next
			if ops[0].Then != nil {
				next = append(ops[0].Then(vpp.Reply{}), next...)
			}
			ops = append(slices.Clone(next), ops[1:]...)
		}
		if drained != tc.drained || lost != tc.lost {
			t.Errorf("%s: %d drained, %d lost, want %d and %d", tc.name, drained, lost, tc.drained, tc.lost)
		}
	}
}
