package vppagent_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func bridge(name string, members ...string) *l2.BridgeDomain {
	m := &l2.BridgeDomain{Name: name, Flood: true, Forward: true, Learn: true}
	for _, i := range members {
		i, bvi := strings.CutSuffix(i, "*")
		m.Interfaces = append(m.Interfaces, &l2.BridgeDomain_Interface{Name: i, BridgedVirtualInterface: bvi})
	}
	return m
}

func loopback(name string) *interfaces.Interface {
	return &interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}
}

func TestInterfaceMovesAtLayer2(t *testing.T) { movesAtLayer2(t, newLab(t, vppagent.Config{}).conn) }

func TestVPPInterfaceMovesAtLayer2(t *testing.T) { movesAtLayer2(t, realVPP(t, 0, "")) }

// An interface has one place at layer 2: in one transaction, it leaves the old place before it gets the new one.
func movesAtLayer2(t *testing.T, caller vppagent.Caller) {
	t.Helper()
	reachesEach(t, caller, [][]proto.Message{
		{bridge("one", "a", "bvi*"), bridge("two", "b")},
		{bridge("one", "a"), bridge("two", "b", "bvi*")},
		{bridge("one", "a", "b*"), &l2.XConnectPair{ReceiveInterface: "bvi", TransmitInterface: "b"}},
		{bridge("one", "b", "a*"), bridge("two", "bvi")},
		{&l2.XConnectPair{ReceiveInterface: "a", TransmitInterface: "b"}, &l2.XConnectPair{ReceiveInterface: "b", TransmitInterface: "a"}},
		{bridge("one", "b", "a*"), &l2.FIBEntry{BridgeDomain: "one", PhysAddress: "02:00:00:00:00:01", OutgoingInterface: "b", StaticConfig: true}},
		{bridge("two", "b", "a")},
		{},
	}, loopback("a"), loopback("b"), loopback("bvi"))
}

// reachesEach takes an agent through states, each in one transaction with their common values. VPP reaches each state; neither a
// repetition of the state nor a fresh agent writes anything.
func reachesEach(t *testing.T, caller vppagent.Caller, states [][]proto.Message, common ...proto.Message) {
	t.Helper()
	agent := vppagent.New(vppagent.Config{Caller: caller})
	for n, values := range states {
		want := kv.Values{}
		for _, m := range append(values, common...) {
			want.Put(m)
		}
		for i := range 3 {
			if i == 2 { // a fresh agent
				agent = vppagent.New(vppagent.Config{Caller: caller})
			}
			c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: want})
			for _, s := range c.Statuses {
				if s.State != event.Configured && s.State != event.Removed {
					t.Fatalf("step %d, round %d:\n%s", n, i, statuses(c))
				}
			}
			if i > 0 && c.Writes > 0 {
				t.Fatalf("step %d, round %d: %d writes", n, i, c.Writes)
			}
		}
	}
}

// A missing member delays no other value; a member that was deleted and added again is put in again, with the entries that point to it.
func TestMembersComeAndGo(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	fib := &l2.FIBEntry{BridgeDomain: "one", PhysAddress: "02:00:00:00:00:01", OutgoingInterface: "tap9", StaticConfig: true}
	member := kv.BridgeDomainInterfaceKey("one", "tap9")
	c := l.put(loopback("a"), bridge("one", "a*", "tap9"), fib)
	for key, want := range map[string]event.State{
		kv.BridgeDomainKey("one"): event.Configured, kv.BridgeDomainInterfaceKey("one", "a"): event.Configured,
		member: event.Pending, kv.Key(fib): event.Pending,
	} {
		if s := status(c, key); s.State != want {
			t.Errorf("%s: %+v, want %s", key, s, want)
		}
	}
	for range 2 {
		l.sim.AddInterface(sim.Interface{Name: "tap9"})
		l.allConfigured(l.resync())
		if dump := l.sim.Dump(); !strings.Contains(dump, "member tap9 group 0") || !strings.Contains(dump, "fib 02:00:00:00:00:01 tap9") {
			t.Fatalf("with the interface:\n%s", dump)
		}
		l.sim.RemoveInterface("tap9")
		c := l.resync()
		if s := status(c, member); s.State != event.Pending {
			t.Fatalf("without the interface: %+v", s)
		}
	}
}

func TestBridgeRefuses(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	for want, m := range map[string]proto.Message{
		`interfaces[1].bridged_virtual_interface: "a" is it already`: bridge("x", "a*", "b*"),
		`interfaces[1].name: "a" twice`:                              bridge("x", "a", "a*"),
		"arp_termination_table[0].phys_address: empty":               &l2.BridgeDomain{Name: "x", ArpTerminationTable: []*l2.BridgeDomain_ArpTerminationEntry{{IpAddress: "10.0.0.1"}}},
		"mac_age: 256 is above 255":                                  &l2.BridgeDomain{Name: "x", MacAge: 256},
		"name: longer than 57 bytes, it does not fit VPP's tag":      &l2.BridgeDomain{Name: strings.Repeat("x", 58)},
		"outgoing_interface: empty":                                  &l2.FIBEntry{BridgeDomain: "x", PhysAddress: "02:00:00:00:00:01"},
		"action: DROP has no outgoing_interface":                     &l2.FIBEntry{BridgeDomain: "x", PhysAddress: "02:00:00:00:00:01", Action: l2.FIBEntry_DROP, OutgoingInterface: "a"},
		"transmit_interface: the receiving one":                      &l2.XConnectPair{ReceiveInterface: "a", TransmitInterface: "a"},
	} {
		if s := status(l.put(m), kv.Key(m)); s.State != event.Invalid || s.Err != want {
			t.Errorf("%s: %+v", want, s)
		}
	}
}

// VPP keeps the addresses of a deleted bridge domain, and shows them in the next one: they are removed before the domain.
func TestAddressesGoBeforeTheirDomain(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	drop := &l2.FIBEntry{BridgeDomain: "one", PhysAddress: "02:00:00:00:00:01", Action: l2.FIBEntry_DROP}
	l.allConfigured(l.put(bridge("one"), drop))
	if c := l.del(kv.BridgeDomainKey("one")); status(c, kv.Key(drop)).State != event.Pending {
		t.Errorf("without its domain:\n%s", statuses(c))
	}
	l.allConfigured(l.put(bridge("two")))
	if dump := l.sim.Dump(); strings.Contains(dump, "fib") {
		t.Errorf("another domain has it:\n%s", dump)
	}
}
