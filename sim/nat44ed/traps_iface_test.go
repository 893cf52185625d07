package nat44ed

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func role(on bool, swIf uint32, f Flags) func(*lab) int32 {
	return func(l *lab) int32 { return l.InterfaceAddDelFeature(on, swIf, f) }
}

func output(on bool, swIf uint32) func(*lab) int32 {
	return func(l *lab) int32 { return l.AddDelOutputInterface(on, swIf) }
}

func enabled(t testing.TB) *lab {
	l := newLab(t)
	l.ok(l.PluginEnableDisable(true, PluginConfig{}))
	return l
}

func (l *lab) nodes(swIf uint32, want ...string) {
	l.t.Helper()
	in, out := l.Arc(swIf).Nodes()
	if got := append(in, out...); !slices.Equal(got, want) {
		l.t.Errorf("nodes of interface %d: %q, want %q", swIf, got, want)
	}
	if l.Arc(swIf).OnInput() != (len(in) > 0) || l.Arc(swIf).OnOutput() != (len(out) > 0) {
		l.t.Errorf("OnInput, OnOutput of interface %d disagree with %q, %q", swIf, in, out)
	}
}

func TestB11Roles(t *testing.T) {
	l := newLab(t)
	run(t, l, []step{{"disabled", role(true, podA, Inside), Unsupported}, {"disabled", output(true, podA), Unsupported}})
	l = enabled(t)
	run(t, l, []step{
		{"del without record", role(false, podA, Inside), NoSuchEntry},
		{"inside", role(true, podA, Inside), OK},
		{"inside again", role(true, podA, Inside), OK},
		{"output beside a role", output(true, podA), ValueExist},
	})
	l.nodes(podA, "nat-pre-in2out")
	run(t, l, []step{{"outside too", role(true, podA, Outside), OK}, {"outside again", role(true, podA, 0), OK}})
	l.nodes(podA, "nat44-ed-classify")
	if diff := cmp.Diff([]Interface{{SwIf: podA, Flags: Inside | Outside}}, l.Interfaces()); diff != "" {
		t.Error(diff)
	}
	run(t, l, []step{{"inside goes", role(false, podA, Inside), OK}})
	l.nodes(podA, "nat-pre-out2in")
	run(t, l, []step{{"outside goes", role(false, podA, 0), OK}})
	l.nodes(podA)
	run(t, l, []step{
		{"both flags in one message are inside", role(true, podB, Inside|Outside), OK},
		{"output feature", output(true, uplink), OK},
		{"again", output(true, uplink), ValueExist},
		{"role beside output", role(true, uplink, Inside), ValueExist},
	})
	l.nodes(podB, "nat-pre-in2out")
	l.nodes(uplink, "nat-pre-out2in", "nat-pre-in2out-output")
	if diff := cmp.Diff([]uint32{uplink}, l.OutputInterfaces()); diff != "" {
		t.Error(diff)
	}
	run(t, l, []step{{"output goes", output(false, uplink), OK}, {"is gone", output(false, uplink), NoSuchEntry}})
	l.nodes(uplink)
}

func TestB11DeletingARoleNotSet(t *testing.T) {
	l := enabled(t)
	run(t, l, []step{{"outside", role(true, podA, Outside), OK}, {"inside goes, which was not set", role(false, podA, Inside), OK}})
	if got := l.Interfaces(); len(got) != 0 {
		t.Errorf("interfaces %v, want none", got)
	}
	l.nodes(podA, "nat-pre-out2in")
	run(t, l, []step{{"", role(true, podA, Inside), OK}, {"", role(true, podA, Outside), OK}})
	l.nodes(podA, "nat44-ed-classify", "nat-pre-out2in")
	run(t, l, []step{{"", role(false, podA, Inside), OK}, {"", role(false, podA, Outside), OK}})
	l.nodes(podA, "nat-pre-out2in")
	l.ok(l.PluginEnableDisable(false, PluginConfig{}))
	l.nodes(podA, "nat-pre-out2in")
}

// The effect of the orphaned node: without reassembly it sees no ports and no SYN.
func TestB11OrphansSeeNoPorts(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	run(t, l, []step{{"", role(false, podA, Outside), OK}, {"not set", role(false, podA, Outside), OK}})
	l.nodes(podA, "nat-pre-in2out")
	l.want(l.in(podA, "udp 10.1.1.2:4000 -> 10.1.1.3:53"), "udp 10.1.1.2:4000 -> 10.1.1.3:53")
	l.ok(l.ForwardingEnableDisable(false))
	l.want(l.in(podA, "udp 10.1.1.2:4000 -> 1.2.3.4:53"), "udp 10.1.1.2:4000 -> 1.2.3.4:53") // no interface is outside
	run(t, l, []step{{"", role(true, podC, Outside), OK}, {"", output(false, uplink), OK}, {"", role(true, uplink, Outside), OK}})
	l.want(l.in(podA, "udp 10.1.1.2:4000 -> 1.2.3.4:53"), "udp 192.168.16.1:63327 -> 1.2.3.4:0 (bad checksum)")
	l.want(l.in(podA, "tcp 10.1.1.2:4000 -> 1.2.3.4:53 [S]"), "drop: nat44-ed-in2out-slowpath: non-SYN packet try to create session")
}

// Setting the role again puts the node on the arc twice; the second one sees the ports of the original packet.
func TestB11NodesRunTwice(t *testing.T) {
	l := enabled(t)
	run(t, l, []step{
		{"", role(true, podA, Inside), OK},
		{"not set", role(false, podA, Outside), OK},
		{"", role(true, podA, Inside), OK},
		{"", role(true, uplink, Outside), OK},
	})
	l.pool("192.168.16.1", 0)
	l.nodes(podA, "nat-pre-in2out", "nat-pre-in2out")
	l.want(l.in(podA, "udp 10.1.1.2:4000 -> 1.2.3.4:53"), "udp 192.168.16.1:63327 -> 1.2.3.4:53")
	l.want(l.in(podA, "icmp 10.1.1.2 -> 1.2.3.4 echo-request id 4000"), "icmp 192.168.16.1 -> 1.2.3.4 echo-request id 4000")
}

// A packet to a load-balanced VIP by an inside-only interface is sent to address zero.
func TestB12InsideOnly(t *testing.T) {
	l := service(t)
	l.ok(l.InterfaceAddDelFeature(false, podA, Outside))
	l.lb(pad(1), backB)
	l.want(l.in(podA, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]"), "tcp 192.168.16.1:4000 -> 0.0.0.0:0 [S]")
	l.ok(l.AddDelLBStaticMapping(false, lbMapping()))
	l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), backB), func(m *LBMapping) { m.Affinity = 10 })))
	l.dies(func() { l.in(podA, "tcp 10.1.1.2:8 -> 10.96.0.10:80 [S]") }, "3.2 B12")
}

func TestB13Forwarding(t *testing.T) {
	l := newLab(t)
	l.ok(l.ForwardingEnableDisable(true))
	if !l.RunningConfig().Forwarding {
		t.Error("forwarding is not taken while the plugin is disabled")
	}
	l.ok(l.PluginEnableDisable(true, PluginConfig{}))
	if l.RunningConfig().Forwarding {
		t.Error("enabling the plugin keeps forwarding on")
	}
	run(t, l, []step{
		{"", role(true, podA, Inside), OK},
		{"", role(true, podA, Outside), OK},
		{"", role(true, podB, Outside), OK},
		{"", role(true, podC, Inside), OK},
	})
	udp := "udp 10.1.1.2:7 -> 10.1.1.3:9"
	back := "udp 10.1.1.3:9 -> 10.1.1.2:7"
	for _, c := range []struct {
		swIf          uint32
		line          string
		without, with string
		sessions      int // with forwarding
	}{
		{podB, back, "drop: nat44-ed-out2in-slowpath: no translation", back, 1},
		{podA, udp, "drop: nat44-ed-in2out-slowpath: out of ports", udp, 1}, // replies to the bypass session
		{podC, "udp 10.1.1.4:7 -> 10.1.1.3:9", "drop: nat44-ed-in2out-slowpath: out of ports", "udp 10.1.1.4:7 -> 10.1.1.3:9", 1},
	} {
		l.ok(l.ForwardingEnableDisable(false))
		l.want(l.in(c.swIf, c.line), c.without)
	}
	l.ok(l.ForwardingEnableDisable(true))
	l.want(l.in(podB, back), back)
	l.want(l.in(podA, udp), udp)
	want := []string{"udp bypass 10.1.1.3:9 -> 10.1.1.2:7"}
	if diff := cmp.Diff(want, l.lines()); diff != "" {
		t.Error(diff)
	}
	l.want(l.in(podA, "udp 10.1.1.2:8 -> 10.1.1.3:9"), "udp 10.1.1.2:8 -> 10.1.1.3:9")
	if diff := cmp.Diff(want, l.lines()); diff != "" {
		t.Errorf("traffic that is no service's by an in+out interface makes sessions: %s", diff)
	}
	l.ok(l.ForwardingEnableDisable(false))
	if got := l.lines(); len(got) != 0 {
		t.Errorf("forwarding off leaves %q", got)
	}
}

func (l *lab) lines() []string {
	var out []string
	for _, s := range l.Sessions() {
		out = append(out, s.String())
	}
	return out
}

func TestB15ReceiveRoutes(t *testing.T) {
	l := enabled(t)
	has := func(a string, swIf uint32, want bool) {
		t.Helper()
		if got := l.routes[route{0, addr(a), swIf}]; got != want {
			t.Errorf("receive route %s at interface %d: %v, want %v", a, swIf, got, want)
		}
	}
	run(t, l, []step{{"", role(true, podA, Outside), OK}, {"", addStatic(single("10.96.0.11", "10.1.1.2", Out2InOnly)), OK}})
	l.pool("172.30.0.1", 0)
	l.pool("10.2.1.254", TwiceNAT)
	has("10.96.0.11", podA, true)
	has("172.30.0.1", podA, true)
	has("10.2.1.254", podA, false)
	l.lb(backA, backB)
	has(vip, podA, false)
	run(t, l, []step{{"", role(true, podB, Outside), OK}})
	has(vip, podB, true)
	has("10.96.0.11", podB, true)
	run(t, l, []step{{"", del(lbMapping()), OK}, {"", delStatic(single("10.96.0.11", "10.1.1.2", Out2InOnly)), OK}})
	has(vip, podB, true) // leaked
	has("10.96.0.11", podB, false)
	run(t, l, []step{{"", role(false, podB, Outside), OK}})
	has(vip, podB, true)
	has("172.30.0.1", podB, false)
	l.ok(l.PluginEnableDisable(false, PluginConfig{}))
	has("172.30.0.1", podA, false)
	has(vip, podB, true)
	if l.locks[0] < 2 {
		t.Errorf("disable gave back the locks of the inside and outside table: %d", l.locks[0])
	}
}

// Dynamic source NAT keeps the port if it can, and never takes one of a static mapping or below 1024.
func TestB16Ports(t *testing.T) {
	l := service(t)
	snat := func(line, want string) {
		t.Helper()
		l.want(l.out(podA, uplink, line), want)
	}
	snat("udp 10.1.1.2:4789 -> 8.8.8.8:53", "udp 192.168.16.1:4789 -> 8.8.8.8:53")
	l.ok(l.AddDelIdentityMapping(true, IdentityMapping{Addr: addr("192.168.16.1"), Port: 5000, Proto: protoUDP, SwIf: None}))
	snat("udp 10.1.1.2:5000 -> 8.8.8.8:53", "udp 192.168.16.1:63327 -> 8.8.8.8:53")
	snat("udp 10.1.1.2:53 -> 8.8.8.8:53", "udp 192.168.16.1:11570 -> 8.8.8.8:53")
	snat("udp 10.1.1.3:4789 -> 8.8.8.8:53", "udp 192.168.16.1:64233 -> 8.8.8.8:53")
	snat("udp 10.1.1.3:4789 -> 8.8.8.9:53", "udp 192.168.16.1:4789 -> 8.8.8.9:53") // endpoint-dependent
	snat("icmp 10.1.1.2 -> 8.8.8.8 echo-request id 7", "icmp 192.168.16.1 -> 8.8.8.8 echo-request id 22324")
	l.want(l.in(uplink, "icmp 8.8.8.8 -> 192.168.16.1 echo-reply id 22324"), "icmp 8.8.8.8 -> 10.1.1.2 echo-reply id 7")
	l.want(l.in(uplink, "udp 8.8.8.8:53 -> 192.168.16.1:64233"), "udp 8.8.8.8:53 -> 10.1.1.3:4789")
	// All ten attempts hit a port in use.
	l.rand = func() uint32 { return 4000 }
	snat("udp 10.1.1.2:80 -> 8.8.8.8:53", "udp 192.168.16.1:5024 -> 8.8.8.8:53")
	snat("udp 10.1.1.2:81 -> 8.8.8.8:53", "drop: nat44-ed-in2out-output-slowpath: out of ports")
}

func TestB17EnableDisable(t *testing.T) {
	l := newLab(t)
	off := RunningConfig{}
	if got := l.RunningConfig(); got != off {
		t.Errorf("never enabled: %+v", got)
	}
	on := func(c PluginConfig) func(*lab) int32 {
		return func(l *lab) int32 { return l.PluginEnableDisable(true, c) }
	}
	disable := func(l *lab) int32 { return l.PluginEnableDisable(false, PluginConfig{}) }
	run(t, l, []step{
		{"disable first", disable, FeatureAlreadyDisabled},
		{"static mapping only", on(PluginConfig{StaticMappingOnly: true}), Unsupported},
		{"connection tracking", on(PluginConfig{ConnectionTracking: true}), Unsupported},
		{"address while off", func(l *lab) int32 {
			return l.AddDelAddressRange(true, AddressRange{First: addr("1.1.1.1"), Last: addr("1.1.1.1")})
		}, Unsupported},
		{"static while off", addStatic(single(vip, "10.1.1.2", 0)), Unsupported},
		{"identity while off", func(l *lab) int32 { return l.AddDelIdentityMapping(true, IdentityMapping{SwIf: None}) }, Unsupported},
		{"session while off", func(l *lab) int32 { return l.DelSession(SessionKey{}) }, Unsupported},
		{"timeouts while off", func(l *lab) int32 { return l.SetTimeouts(Timeouts{1, 2, 3, 4}) }, OK},
		{"on", on(PluginConfig{Sessions: 1000, InsideVRF: 5}), OK},
		{"on again", on(PluginConfig{Sessions: 2000}), FeatureAlreadyEnabled},
	})
	want := RunningConfig{InsideVRF: 5, Sessions: 1000, TranslationBuckets: 512, Timeouts: Timeouts{300, 7440, 240, 60}}
	if got := l.RunningConfig(); got != want || !l.HasTable(5) {
		t.Errorf("got %+v want %+v", got, want)
	}
	run(t, l, []step{
		{"", role(true, podA, Inside), OK},
		{"", role(true, podA, Outside), OK},
		{"", output(true, uplink), OK},
		{"", addStatic(single("10.96.0.11", "10.1.1.2", Out2InOnly)), OK},
		{"", add(lbMapping(backA, backB)), OK},
		{"", func(l *lab) int32 { return l.AddDelVRFTable(true, 5) }, OK},
	})
	l.pool("192.168.16.1", 0)
	l.pool("10.2.1.254", TwiceNAT)
	l.want(l.in(podA, "tcp 10.1.1.4:7 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.4:7 -> 10.1.1.3:8080 [S]")
	run(t, l, []step{{"off", disable, OK}})
	l.nodes(podA)
	l.nodes(uplink)
	if len(l.Interfaces())+len(l.OutputInterfaces())+len(l.Addresses())+len(l.StaticMappings())+len(l.LBStaticMappings())+len(l.Sessions())+len(l.VRFTables()) != 0 {
		t.Error("disable leaves configuration behind")
	}
	run(t, l, []step{{"on with defaults", on(PluginConfig{}), OK}})
	if got := l.RunningConfig(); got.Sessions != 64512 || got.TranslationBuckets != 32768 {
		t.Errorf("defaults: %+v", got)
	}
	run(t, l, []step{{"nothing is left", add(lbMapping(backA, backB)), OK}})
}

func TestAddressPools(t *testing.T) {
	rng := func(on bool, first, last string, vrf uint32, f Flags) func(*lab) int32 {
		return func(l *lab) int32 { return l.AddDelAddressRange(on, AddressRange{addr(first), addr(last), vrf, f}) }
	}
	l := enabled(t)
	run(t, l, []step{
		{"one", rng(true, "10.0.0.1", "10.0.0.1", None, 0), OK},
		{"again, other VRF", rng(true, "10.0.0.1", "10.0.0.1", 0, 0), ValueExist},
		{"the same for twice-nat", rng(true, "10.0.0.1", "10.0.0.1", None, TwiceNAT), OK},
		{"last before first", rng(true, "10.0.0.9", "10.0.0.8", None, 0), OK},
		{"a range that meets an old one", rng(true, "10.0.0.0", "10.0.0.3", 7, 0), ValueExist},
		{"absent", rng(false, "10.0.0.9", "10.0.0.9", None, 0), NoSuchEntry},
		{"absent in twice-nat", rng(false, "10.0.0.0", "10.0.0.0", None, TwiceNAT), NoSuchEntry},
		{"three", rng(true, "10.0.0.2", "10.0.0.4", 7, 0), OK},
		{"the first goes, the last takes its place", rng(false, "10.0.0.1", "10.0.0.1", None, 0), OK},
	})
	want := []Address{
		{addr("10.0.0.4"), 7, 0},
		{addr("10.0.0.0"), 7, 0},
		{addr("10.0.0.2"), 7, 0},
		{addr("10.0.0.3"), 7, 0},
		{addr("10.0.0.1"), None, TwiceNAT},
	}
	if diff := cmp.Diff(want, l.Addresses(), cmpAddr); diff != "" {
		t.Error(diff)
	}
}

func TestDynamicSessionsEndWithTheirAddress(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	l.out(podA, uplink, "udp 10.1.1.2:5000 -> 8.8.8.8:53")
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	l.ok(l.AddDelAddressRange(false, AddressRange{First: addr("192.168.16.1"), Last: addr("192.168.16.1")}))
	if diff := cmp.Diff([]string{"tcp out2in 10.1.1.2:7 -> 10.96.0.10:80 => 10.1.1.2:7 -> 10.1.1.3:8080 static load-balanced transitory"}, l.lines()); diff != "" {
		t.Error(diff)
	}
}

func TestAddressesOfInterfaces(t *testing.T) {
	l := enabled(t)
	p := netip.MustParsePrefix("10.3.0.1/24")
	twice := func(on bool, want int32) step {
		return step{"", func(l *lab) int32 { return l.AddDelInterfaceAddr(on, podB, TwiceNAT) }, want}
	}
	run(t, l, []step{
		{"uplink's address", func(l *lab) int32 { return l.AddDelInterfaceAddr(true, uplink, 0) }, OK},
		{"again", func(l *lab) int32 { return l.AddDelInterfaceAddr(true, uplink, 0) }, ValueExist},
		twice(true, OK), twice(true, ValueExist),
	})
	m := single("0.0.0.0", "10.1.1.2", 0)
	m.ExternalIf = podB
	run(t, l, []step{{"mapping that waits for an address", addStatic(m), OK}, {"again", addStatic(m), ValueExist}})
	if got := len(l.StaticMappings()); got != 1 {
		t.Errorf("%d mappings, want the waiting one", got)
	}
	l.addrs[podB] = []netip.Prefix{p}
	l.AddressChanged(podB, p, true)
	want := []Address{{addr("192.168.16.1"), None, 0}, {addr("10.3.0.1"), None, TwiceNAT}}
	if diff := cmp.Diff(want, l.Addresses(), cmpAddr); diff != "" {
		t.Error(diff)
	}
	if got := l.StaticMappings(); len(got) != 2 || got[0].External != addr("10.3.0.1") || got[1].ExternalIf != podB {
		t.Errorf("an interface's mapping is dumped twice once resolved; got %+v", got)
	}
	l.addrs[podB] = nil
	l.AddressChanged(podB, p, false)
	if diff := cmp.Diff(want[:1], l.Addresses(), cmpAddr); diff != "" {
		t.Error(diff)
	}
	run(t, l, []step{{"mapping goes", delStatic(m), OK}, {"is gone", delStatic(m), NoSuchEntry}, twice(false, OK), twice(false, NoSuchEntry)})
	if diff := cmp.Diff([]InterfaceAddr{{SwIf: uplink}}, l.InterfaceAddrs()); diff != "" {
		t.Error(diff)
	}
}

func TestIdentityMappings(t *testing.T) {
	l := service(t)
	id := func(on bool, vrf uint32) func(*lab) int32 {
		return func(l *lab) int32 {
			return l.AddDelIdentityMapping(on, IdentityMapping{Addr: addr("192.168.16.1"), Port: 4789, Proto: protoUDP, SwIf: None, VRF: vrf, Tag: "x"})
		}
	}
	run(t, l, []step{
		{"add", id(true, 0), OK},
		{"again", id(true, 0), ValueExist},
		{"another VRF", id(true, 3), OK},
		{"out2in-only", func(l *lab) int32 {
			return l.addDelSingle(true, smResolve{flags: smIdentity | smOut2InOnly}, 1)
		}, Unsupported},
	})
	want := []IdentityMapping{
		{addr("192.168.16.1"), 4789, protoUDP, None, 0, 0, "x"}, {addr("192.168.16.1"), 4789, protoUDP, None, 3, 0, "x"},
	}
	if diff := cmp.Diff(want, l.IdentityMappings(), cmpAddr); diff != "" {
		t.Error(diff)
	}
	l.want(l.in(uplink, "udp 8.8.8.8:7 -> 192.168.16.1:4789"), "udp 8.8.8.8:7 -> 192.168.16.1:4789")
	l.want(l.out(0, uplink, "udp 192.168.16.1:4789 -> 8.8.8.8:7"), "udp 192.168.16.1:4789 -> 8.8.8.8:7")
	if got := l.lines(); len(got) != 0 {
		t.Errorf("sessions %q, want none", got)
	}
	run(t, l, []step{{"one VRF", id(false, 0), OK}, {"absent", id(false, 0), NoSuchEntry}, {"the other", id(false, 3), OK}, {"gone", id(false, 3), NoSuchEntry}})
}

func TestTagsAreCut(t *testing.T) {
	l := service(t)
	long := string(make([]byte, 0))
	for range 64 {
		long += "x"
	}
	l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(backA, backB), func(m *LBMapping) { m.Tag, m.Affinity = long, 5 })))
	if m := l.LBStaticMappings()[0]; len(m.Tag) != 63 || m.Affinity != 0 {
		t.Errorf("tag of %d bytes, affinity %d; want 63 and 0", len(m.Tag), m.Affinity)
	}
}

func TestVRFTables(t *testing.T) {
	l := enabled(t)
	table := func(on bool, id uint32) func(*lab) int32 {
		return func(l *lab) int32 { return l.AddDelVRFTable(on, id) }
	}
	rt := func(on bool, id, vrf uint32) func(*lab) int32 {
		return func(l *lab) int32 { return l.AddDelVRFRoute(on, id, vrf) }
	}
	run(t, l, []step{
		{"route without table", rt(true, 1, 2), NoSuchEntry},
		{"del absent", table(false, 1), NoSuchEntry},
		{"table", table(true, 1), OK},
		{"again", table(true, 1), ValueExist},
		{"route", rt(true, 1, 2), OK},
		{"again", rt(true, 1, 2), ValueExist},
		{"absent", rt(false, 1, 3), NoSuchEntry},
	})
	if diff := cmp.Diff([]VRFTable{{1, []uint32{2}}}, l.VRFTables()); diff != "" {
		t.Error(diff)
	}
	run(t, l, []step{{"route goes", rt(false, 1, 2), OK}, {"table goes", table(false, 1), OK}})
	if l.locks[1] != 0 || l.locks[2] != 0 {
		t.Errorf("locks %v", l.locks)
	}
}

func TestInterfaceDeleted(t *testing.T) {
	l := service(t)
	l.InterfaceDeleted(podA)
	l.InterfaceDeleted(uplink)
	l.nodes(podA)
	l.nodes(uplink)
	if got := len(l.Interfaces()) + len(l.OutputInterfaces()); got != 2 {
		t.Errorf("%d records, want those of two pods", got)
	}
}

// A node that feature_enable_disable put on an arc has no record, and leaves with the interface alone: not with its roles.
func TestSwitchedNodes(t *testing.T) {
	l := service(t)
	if l.SwitchNode(podA, "nat44-ed-nothing", true) {
		t.Error("an unknown node was switched")
	}
	l.SwitchNode(podA, "nat44-handoff-classify", true)
	l.nodes(podA, "nat44-ed-classify", "nat44-ed-classify")
	l.ok(l.InterfaceAddDelFeature(false, podA, Outside))
	l.ok(l.InterfaceAddDelFeature(false, podA, Inside))
	l.nodes(podA, "nat44-ed-classify")
	l.SwitchNode(podA, "nat-pre-out2in", false)
	l.nodes(podA, "nat44-ed-classify")
	l.InterfaceDeleted(podA)
	l.nodes(podA)
}

// The far end of an identity mapping is no external end for classify: packets of a pod to it are translated by source.
func TestIdentityMappingIsClassifiedInside(t *testing.T) {
	l := service(t)
	l.ok(l.AddDelIdentityMapping(true, IdentityMapping{Addr: addr("172.30.0.9"), Port: 53, Proto: protoUDP, SwIf: None}))
	l.want(l.in(podA, "udp 10.1.1.2:4000 -> 172.30.0.9:53"), "udp 192.168.16.1:4000 -> 172.30.0.9:53")
	l.want(l.in(podA, "udp 10.1.1.2:4000 -> 172.30.0.9:54"), "udp 10.1.1.2:4000 -> 172.30.0.9:54")
}

func TestRandomPortsAreUserPorts(t *testing.T) {
	l := service(t)
	for r, want := range map[uint32]uint16{0: 1024, 64511: 65535, 64512: 1024, 0x1ffff: 1024 + 0x1ffff%64512, 0xffff0003: 1027} {
		l.rand = func() uint32 { return r }
		if got := l.randomPort(); got != want {
			t.Errorf("random number %#x gives port %d, want %d", r, got, want)
		}
	}
}
