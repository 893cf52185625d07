package vppagent_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/arp"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func proxy(first, last string, names ...string) *l3.ProxyARP {
	m := &l3.ProxyARP{Ranges: []*l3.ProxyARP_Range{{FirstIpAddr: first, LastIpAddr: last}}}
	for _, n := range names {
		m.Interfaces = append(m.Interfaces, &l3.ProxyARP_Interface{Name: n})
	}
	return m
}

// Foreign ranges of proxy ARP stay, with the agent that made ours and with the next one.
func TestProxyARPLeavesOthersAlone(t *testing.T) {
	for _, restart := range []bool{false, true} {
		l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
		l.sim.AddInterface(sim.Interface{Name: "tap1"})
		l.sim.AddInterface(sim.Interface{Name: "tap2"})
		low, high := netip.MustParseAddr("10.5.0.1").As4(), netip.MustParseAddr("10.5.0.9").As4()
		for _, r := range l.conn.Do(t.Context(),
			vpp.Call{Msg: &arp.ProxyArpAddDel{IsAdd: true, Proxy: arp.ProxyArp{Low: low, Hi: high}}},
			vpp.Call{Msg: &arp.ProxyArpIntfcEnableDisable{SwIfIndex: 2, Enable: true}}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		l.resync()
		before := l.sim.Dump()
		m := proxy("10.1.0.1", "10.1.0.9", "tap1", "tap9")
		c := l.put(m)
		for key, want := range map[string]event.State{
			kv.ProxyARPKey: event.Configured, kv.ProxyARPInterfaceKey("tap1"): event.Configured, kv.ProxyARPInterfaceKey("tap9"): event.Pending,
		} {
			if s := status(c, key); s.State != want {
				t.Errorf("%s: %+v, want %s", key, s, want)
			}
		}
		delete(l.want, kv.ProxyARPKey)
		if restart {
			l.restartAgent()
		}
		l.resync()
		if got := l.sim.Dump(); got != before {
			t.Errorf("restart %t: before\n%s\nafter\n%s", restart, before, got)
		}
	}
}

// VPP's records show proxy ARP on an interface that got the index of a deleted one: the agent turns it on nevertheless.
func TestProxyARPOnAnIndexUsedBefore(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.sim.AddInterface(sim.Interface{Name: "tap1"})
	if r := l.conn.Do(t.Context(), vpp.Call{Msg: &arp.ProxyArpIntfcEnableDisable{SwIfIndex: 1, Enable: true}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	l.sim.RemoveInterface("tap1")
	l.allConfigured(l.put(loopback("a"), proxy("10.1.0.1", "10.1.0.9", "a")))
	if dump := l.sim.Dump(); !strings.Contains(dump, "proxy-arp on loop0") {
		t.Errorf("it does not answer:\n%s", dump)
	}
}

// The journal identifies objects without a tag: a new agent removes the unwanted objects of its predecessor.
func TestLayer2IsRemembered(t *testing.T) {
	l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
	l.put(loopback("a"), loopback("b"), loopback("c"), bridge("one", "c"))
	before := l.sim.Dump()
	for _, m := range []proto.Message{
		&l2.XConnectPair{ReceiveInterface: "a", TransmitInterface: "b"},
		&l2.FIBEntry{BridgeDomain: "one", PhysAddress: "02:00:00:00:00:01", OutgoingInterface: "c"},
		&interfaces.Span{InterfaceFrom: "a", InterfaceTo: "b", Direction: interfaces.Span_RX},
	} {
		l.allConfigured(l.put(m))
		if l.sim.Dump() == before {
			t.Fatalf("%T changed nothing", m)
		}
		delete(l.want, kv.Key(m))
		l.restartAgent()
		l.allConfigured(l.resync())
		if got := l.sim.Dump(); got != before {
			t.Errorf("%T is still there:\n%s", m, got)
		}
	}
}

// A mirror is removed before its source and its destination.
func TestMirrorGoesBeforeItsInterfaces(t *testing.T) {
	for _, gone := range []string{"a", "b"} {
		l := newLab(t, vppagent.Config{})
		l.allConfigured(l.put(loopback("a"), loopback("b"), &interfaces.Span{InterfaceFrom: "a", InterfaceTo: "b", Direction: interfaces.Span_BOTH}))
		l.del(kv.InterfaceKey(gone))
		if dump := l.sim.Dump(); strings.Contains(dump, "span") {
			t.Errorf("without %s:\n%s", gone, dump)
		}
	}
}

func TestMirrorRefuses(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	for want, m := range map[string]proto.Message{
		"direction: UNKNOWN is none":                                    &interfaces.Span{InterfaceFrom: "a", InterfaceTo: "b"},
		"interface_to: the one that is watched":                         &interfaces.Span{InterfaceFrom: "a", InterfaceTo: "a", Direction: interfaces.Span_RX},
		"ranges[0].last_ip_addr: 10.1.0.1 is before 10.1.0.9":           proxy("10.1.0.9", "10.1.0.1"),
		`interfaces[1].name: "a" twice`:                                 proxy("10.1.0.1", "10.1.0.9", "a", "a"),
		"ranges[0].first_ip_addr: \"::1\" is not an IPv4 address":       proxy("::1", "::2"),
		"scan_interval: not supported: VPP has no scan to pace":         &l3.IPScanNeighbor{ScanInterval: 1, MaxProcTime: 1, MaxUpdate: 1, ScanIntDelay: 1},
		"stale_threshold: 0, and VPP's default is that neighbours stay": &l3.IPScanNeighbor{Mode: l3.IPScanNeighbor_IPV4},
		"ranges: neither these nor interfaces are set":                  &l3.ProxyARP{},
	} {
		if s := status(l.put(m), kv.Key(m)); s.State != event.Invalid || s.Err != want {
			t.Errorf("%s: %+v", want, s)
		}
	}
}
