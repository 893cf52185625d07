package sim

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// node returns a VPP as a CNI makes it: pods a and b behind /32 routes, an uplink with a default route, an overlay.
func node(t testing.TB, cfg Config) *VPP {
	t.Helper()
	v := New(cfg)
	v.AddInterface(Interface{Name: "loop7", Addresses: prefixes("10.1.1.1/24")})
	for i, pod := range []string{"a", "b"} {
		v.AddInterface(Interface{Name: "pod-" + pod})
		v.ifs.byName["pod-"+pod].unnumbered = v.ifs.byName["loop7"].index
		addRoute(t, v, fmt.Sprintf("10.1.1.%d/32", i+2), Path{Interface: "pod-" + pod})
	}
	v.AddInterface(Interface{Name: "uplink", Addresses: prefixes("192.168.16.1/24")})
	v.AddInterface(Interface{Name: "overlay", Addresses: prefixes("10.9.0.1/24")})
	addRoute(t, v, "0.0.0.0/0", Path{Interface: "uplink", Via: netip.MustParseAddr("192.168.16.100")})
	addRoute(t, v, "10.1.2.0/24", Path{Interface: "overlay", Via: netip.MustParseAddr("10.9.0.2")})
	return v
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func addRoute(t testing.TB, v *VPP, prefix string, paths ...Path) {
	t.Helper()
	if err := v.AddRoute(Route{Prefix: netip.MustParsePrefix(prefix), Paths: paths}); err != nil {
		t.Fatal(err)
	}
}

// send is Send with text on both sides: "pod-b tcp …", "local tcp …" or "dropped: <last hop>".
func send(t testing.TB, v *VPP, in, text string) string {
	t.Helper()
	p, err := packet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	fate := v.Send(in, p)
	if len(fate.Out) == 0 {
		return "dropped: " + fate.Hops[len(fate.Hops)-1].String()
	}
	o := fate.Out[0]
	where := o.Interface
	if o.Local {
		where = "local"
	}
	o.Packet.TTL = 0
	if o.Packet.Inner != nil {
		o.Packet.Inner.TTL = 0
	}
	s := where + " " + o.Packet.String()
	if o.Origin != Forwarded {
		s = o.Origin + " " + s
	}
	return s
}

func TestForward(t *testing.T) {
	v := node(t, Config{})
	addRoute(t, v, "10.96.0.0/16", Path{Type: PathUnreach})
	addRoute(t, v, "10.97.0.0/16", Path{Type: PathProhibit})
	addRoute(t, v, "192.0.2.0/24", Path{Type: PathDrop})
	addRoute(t, v, "172.16.0.0/16", Path{Via: netip.MustParseAddr("10.1.2.7")})
	v.AddInterface(Interface{Name: "tap9", Down: true})
	addRoute(t, v, "172.17.0.0/16", Path{Interface: "tap9"})
	for _, c := range []struct{ name, in, pkt, want string }{
		{"pod to pod", "pod-a", "tcp 10.1.1.2:1 -> 10.1.1.3:80 [S]", "pod-b tcp 10.1.1.2:1 -> 10.1.1.3:80 [S]"},
		{"pod to the world", "pod-a", "udp 10.1.1.2:1 -> 8.8.8.8:53", "uplink udp 10.1.1.2:1 -> 8.8.8.8:53"},
		{"longest prefix", "pod-a", "udp 10.1.1.2:1 -> 10.1.2.9:53", "overlay udp 10.1.1.2:1 -> 10.1.2.9:53"},
		{"recursive route", "pod-a", "udp 10.1.1.2:1 -> 172.16.0.1:53", "overlay udp 10.1.1.2:1 -> 172.16.0.1:53"},
		{"attached subnet", "pod-a", "udp 10.1.1.2:1 -> 192.168.16.9:53", "uplink udp 10.1.1.2:1 -> 192.168.16.9:53"},
		{
			"unreachable", "pod-a", "tcp 10.1.1.2:1 -> 10.96.0.1:80 [S]",
			"icmp-error pod-a icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1 about (tcp 10.1.1.2:1 -> 10.96.0.1:80 [S])",
		},
		{
			"prohibited", "pod-a", "udp 10.1.1.2:1 -> 10.97.0.1:80",
			"icmp-error pod-a icmp 10.1.1.1 -> 10.1.1.2 type 3 code 10 about (udp 10.1.1.2:1 -> 10.97.0.1:80)",
		},
		{
			"unreachable from outside", "uplink", "udp 192.168.16.100:1 -> 10.96.0.1:80",
			"icmp-error uplink icmp 192.168.16.1 -> 192.168.16.100 type 3 code 1 about (udp 192.168.16.100:1 -> 10.96.0.1:80)",
		},
		{"drop route", "pod-a", "udp 10.1.1.2:1 -> 192.0.2.1:1", "dropped: ip4-lookup: drop: 192.0.2.0/24 drop"},
		{"interface down", "pod-a", "udp 10.1.1.2:1 -> 172.17.0.1:1", "dropped: ip4-lookup: drop: 172.17.0.0/16: no usable path (via tap9)"},
		{"network address", "pod-a", "udp 10.1.1.2:1 -> 192.168.16.0:1", "dropped: ip4-lookup: drop: 192.168.16.0/32 drop"},
		{"multicast", "pod-a", "udp 10.1.1.2:1 -> 224.0.0.1:1", "dropped: ip4-lookup: drop: 224.0.0.0/4 drop"},
		{
			"ttl", "pod-a", "udp 10.1.1.2:1 -> 8.8.8.8:53 ttl 1",
			"icmp-error pod-a icmp 10.1.1.1 -> 10.1.1.2 type 11 code 0 about (udp 10.1.1.2:1 -> 8.8.8.8:53)",
		},
		{"no such interface", "nothing", "udp 10.1.1.2:1 -> 8.8.8.8:53", "dropped: ethernet-input: drop: vpp has no interface nothing"},
		{"in by a dead one", "tap9", "udp 10.1.1.2:1 -> 8.8.8.8:53", "dropped: ethernet-input: drop: interface tap9 is down"},
		{"ping VPP", "pod-a", "icmp 10.1.1.2 -> 192.168.16.1 echo-request id 7", "answered pod-a icmp 192.168.16.1 -> 10.1.1.2 echo-reply id 7"},
		{
			"udp to VPP", "uplink", "udp 192.168.16.100:1 -> 192.168.16.1:99",
			"icmp-error uplink icmp 192.168.16.1 -> 192.168.16.100 type 3 code 3 about (udp 192.168.16.100:1 -> 192.168.16.1:99)",
		},
		{"tcp to VPP", "uplink", "tcp 192.168.16.100:1 -> 192.168.16.1:99 [S]", "dropped: ip4-local: drop: unknown ip protocol"},
		{
			"spoofed", "uplink", "tcp 192.168.16.1:1 -> 192.168.16.1:99 [S]",
			"dropped: ip4-local: drop: source 192.168.16.1 is VPP's own (spoofed local-address packet)",
		},
		{
			"no way back", "uplink", "tcp 192.0.2.77:1 -> 192.168.16.1:99 [S]",
			"dropped: ip4-local: drop: no route to source 192.0.2.77 (ip4 source lookup miss)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := send(t, v, c.in, c.pkt); got != c.want {
				t.Errorf("%s by %s\n got %s\nwant %s", c.pkt, c.in, got, c.want)
			}
		})
	}
}

func TestPuntLocalAndSendLocal(t *testing.T) {
	v := node(t, Config{PuntLocal: true})
	if got, want := send(t, v, "uplink", "tcp 192.168.16.100:1 -> 192.168.16.1:22 [S]"), "local tcp 192.168.16.100:1 -> 192.168.16.1:22 [S]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p, _ := packet.Parse("tcp 192.168.16.1:22 -> 10.1.1.2:9 [SA]")
	if f := v.SendLocal(p); len(f.Out) != 1 || f.Out[0].Interface != "pod-a" {
		t.Errorf("fate of the node's own packet: %+v", f)
	}
}

func TestSessionLayerResets(t *testing.T) {
	v := node(t, Config{})
	v.sessionLayer = true
	want := "answered uplink tcp 192.168.16.1:99 -> 192.168.16.100:1 [RA]"
	if got := send(t, v, "uplink", "tcp 192.168.16.100:1 -> 192.168.16.1:99 [S]"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTTLIsCountedOnce(t *testing.T) {
	v := node(t, Config{})
	p, _ := packet.Parse("udp 10.1.1.2:1 -> 10.1.1.3:53 ttl 9")
	if f := v.Send("pod-a", p); f.Out[0].Packet.TTL != 8 {
		t.Errorf("ttl %d", f.Out[0].Packet.TTL)
	}
}

func TestIPv6(t *testing.T) {
	v := New(Config{})
	v.AddInterface(Interface{Name: "tap1", Addresses: prefixes("fd00:1::1/64")})
	v.AddInterface(Interface{Name: "tap2"})
	addRoute(t, v, "fd00:2::2/128", Path{Interface: "tap2"})
	if got, want := send(t, v, "tap1", "udp [fd00:1::9]:1 -> [fd00:2::2]:5"), "tap2 udp [fd00:1::9]:1 -> [fd00:2::2]:5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := send(t, v, "tap1", "udp [fd00:1::9]:1 -> [fd00:3::2]:5"); !strings.HasPrefix(got, "dropped: ip6-lookup") {
		t.Error(got)
	}
}

func TestTables(t *testing.T) {
	v := New(Config{})
	v.AddInterface(Interface{Name: "tap1", VRF: 5, Addresses: prefixes("10.5.0.1/24")})
	v.AddInterface(Interface{Name: "tap2", Addresses: prefixes("10.5.0.1/24")})
	for in, want := range map[string]string{"tap1": "tap1", "tap2": "tap2"} {
		if got := send(t, v, in, "udp 10.5.0.9:1 -> 10.5.0.8:5"); !strings.HasPrefix(got, want) {
			t.Errorf("by %s: %s", in, got)
		}
	}
	c := dial(t, v)
	leak := &ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{
		TableID: 0, Prefix: toPrefix(netip.MustParsePrefix("10.6.0.0/16")), NPaths: 1,
		Paths: []fib_types.FibPath{{SwIfIndex: noIndex, TableID: 5}},
	}}
	c.must(leak)
	if got := send(t, v, "tap2", "udp 10.5.0.9:1 -> 10.6.0.8:5"); got != "dropped: ip4-lookup: drop: 10.6.0.0/16 drop" {
		t.Errorf("a lookup in table 5 that has no route: %s", got)
	}
	addRoute5 := Route{VRF: 5, Prefix: netip.MustParsePrefix("10.6.0.0/24"), Paths: []Path{{Interface: "tap1"}}}
	if err := v.AddRoute(addRoute5); err != nil {
		t.Fatal(err)
	}
	if got := send(t, v, "tap2", "udp 10.5.0.9:1 -> 10.6.0.8:5"); !strings.HasPrefix(got, "tap1") {
		t.Errorf("a route into table 5: %s", got)
	}
}

// Equal-cost paths share flows by weight, and a flow stays on its path. If one path fails, all flows move to the others.
func TestEqualCostPaths(t *testing.T) {
	v := New(Config{})
	v.AddInterface(Interface{Name: "in"})
	v.AddInterface(Interface{Name: "x"})
	v.AddInterface(Interface{Name: "y"})
	addRoute(t, v, "10.0.0.0/8", Path{Interface: "x", Weight: 3}, Path{Interface: "y", Weight: 1})
	count := map[string]int{}
	for i := range 400 {
		pkt := fmt.Sprintf("udp 1.1.1.1:%d -> 10.0.0.1:5", i+1)
		first := send(t, v, "in", pkt)
		if second := send(t, v, "in", pkt); first != second {
			t.Fatalf("%s went to %s, then %s", pkt, first, second)
		}
		count[first[:1]]++
	}
	if count["x"] < 250 || count["y"] < 60 || count["x"]+count["y"] != 400 {
		t.Errorf("flows are shared %v, want about 300:100", count)
	}
	if err := v.SetInterfaceUp("x", false); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if got := send(t, v, "in", fmt.Sprintf("udp 1.1.1.1:%d -> 10.0.0.1:5", i+1)); !strings.HasPrefix(got, "y ") {
			t.Fatalf("with x down: %s", got)
		}
	}
}

func TestArcOrder(t *testing.T) {
	var a arcs
	for _, name := range []string{"ip4-inacl", "nat44-ed", "acl-plugin-in-ip4-fa", "cnat-snat-ip4", "cnat-input-ip4"} {
		a.addFeature(ip4Unicast, feature{name: name})
	}
	for _, name := range []string{"cnat-output-ip4", "acl-plugin-out-ip4-fa", "nat44-ed-output"} {
		a.addFeature(ip4Output, feature{name: name})
	}
	want := `ip4-unicast:
  cnat-input-ip4
  acl-plugin-in-ip4-fa
  nat44-ed
  cnat-snat-ip4
  ip4-inacl
ip4-output:
  nat44-ed-output
  acl-plugin-out-ip4-fa
  cnat-output-ip4
ip6-unicast:
ip6-output:
`
	if got := a.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a feature without a place was taken")
		}
	}()
	a.addFeature(ip6Output, feature{name: "nonsense"})
}

// Services, through the API and the engine.

const (
	both = nat_types.NAT_IS_INSIDE | nat_types.NAT_IS_OUTSIDE
	vip  = "10.96.0.10"
)

func index(v *VPP, name string) interface_types.InterfaceIndex { return ifIndex(v.ifs.byName[name]) }

// natOn does the agent's first steps on a VPP: both roles everywhere except on the uplink, which masquerades.
func natOn(t testing.TB, v *VPP) *client {
	t.Helper()
	c := dial(t, v)
	list := []api.Message{
		&nat44_ed.Nat44EdPluginEnableDisable{Enable: true, Sessions: 1000},
		&nat44_ed.Nat44ForwardingEnableDisable{Enable: true},
		&nat44_ed.Nat44AddDelAddressRange{IsAdd: true, FirstIPAddress: a4("10.1.1.254"), LastIPAddress: a4("10.1.1.254"), VrfID: noIndex, Flags: nat_types.NAT_IS_TWICE_NAT},
		&nat44_ed.Nat44AddDelAddressRange{IsAdd: true, FirstIPAddress: a4("192.168.16.1"), LastIPAddress: a4("192.168.16.1"), VrfID: noIndex},
		&nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: true, SwIfIndex: index(v, "uplink")},
	}
	for _, name := range []string{"pod-a", "pod-b", "overlay"} {
		for _, role := range []nat_types.NatConfigFlags{nat_types.NAT_IS_INSIDE, nat_types.NAT_IS_OUTSIDE} {
			list = append(list, &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: index(v, name), Flags: role})
		}
	}
	c.must(list...)
	return c
}

func a4(s string) [4]byte { return netip.MustParseAddr(s).As4() }

func lbMapping(addr string, flags nat_types.NatConfigFlags, locals ...string) *nat44_ed.Nat44AddDelLbStaticMapping {
	m := &nat44_ed.Nat44AddDelLbStaticMapping{IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY | flags, ExternalAddr: a4(addr), ExternalPort: 80, Protocol: 6}
	for i, pad := range []string{"192.0.2.1", "192.0.2.2"} {
		_ = i
		m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: a4(pad), Port: 1})
	}
	for _, l := range locals {
		m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: a4(l), Port: 8080, Probability: 1})
	}
	return m
}

func TestClusterIP(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	addRoute(t, v, "10.96.0.0/16", Path{Type: PathUnreach})
	c.must(lbMapping(vip, nat_types.NAT_IS_SELF_TWICE_NAT, "10.1.1.3"))
	steps := []struct{ in, pkt, want string }{
		{"pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S]"},
		{"pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]", "pod-a tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"},
		{"pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:81 [S]", "icmp-error pod-a icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1 about (tcp 10.1.1.2:4000 -> 10.96.0.10:81 [S])"},
		{"overlay", "tcp 10.1.2.9:5 -> 10.96.0.10:80 [S]", "pod-b tcp 10.1.2.9:5 -> 10.1.1.3:8080 [S]"},
		{"pod-a", "udp 10.1.1.2:9 -> 10.1.1.3:53", "pod-b udp 10.1.1.2:9 -> 10.1.1.3:53"},
		{"pod-a", "udp 10.1.1.2:4009 -> 8.8.8.8:53", "uplink udp 192.168.16.1:4009 -> 8.8.8.8:53"},
		{"uplink", "udp 8.8.8.8:53 -> 192.168.16.1:4009", "pod-a udp 8.8.8.8:53 -> 10.1.1.2:4009"},
		{"uplink", "tcp 1.2.3.4:5 -> 10.96.0.10:80 [S]", "pod-b tcp 1.2.3.4:5 -> 10.1.1.3:8080 [S]"},
		{"pod-b", "tcp 10.1.1.3:8080 -> 1.2.3.4:5 [SA]", "uplink tcp 10.96.0.10:80 -> 1.2.3.4:5 [SA]"},
	}
	for _, s := range steps {
		if got := send(t, v, s.in, s.pkt); got != s.want {
			t.Errorf("%s by %s\n got %s\nwant %s", s.pkt, s.in, got, s.want)
		}
	}
}

func TestHairpin(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	c.must(lbMapping(vip, nat_types.NAT_IS_SELF_TWICE_NAT, "10.1.1.2"))
	p, _ := packet.Parse("tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]")
	out := v.Send("pod-a", p).Out
	if len(out) != 1 || out[0].Interface != "pod-a" || out[0].Packet.Src.String() != "10.1.1.254" || out[0].Packet.Dst.String() != "10.1.1.2" {
		t.Fatalf("to itself: %+v", out)
	}
	back := out[0].Packet.Reply()
	out = v.Send("pod-a", back).Out
	if len(out) != 1 || out[0].Interface != "pod-a" {
		t.Fatalf("back: %+v", out)
	}
	out[0].Packet.TTL = 0
	if got, want := out[0].Packet.String(), "tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"; got != want {
		t.Errorf("back: got %s, want %s", got, want)
	}
}

// Vpp.md 3.2 A5: a sum of weights that is 0 modulo 256 crashes VPP with the first packet, not with the message.
func TestCrashOnPacket(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	c.must(lbMapping(vip, 0)) // pads only
	if v.Crashed() != nil {
		t.Fatal(v.Crashed())
	}
	got := send(t, v, "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]")
	if err := v.Crashed(); err == nil || !strings.Contains(got, err.Error()) || !strings.Contains(err.Error(), "A5") {
		t.Fatalf("crashed %v, packet %s", err, got)
	}
	if !c.dead() {
		t.Error("connection lived through a crash")
	}
	if _, err := v.Dial(t.Context()); err == nil {
		t.Error("a dead VPP takes connections")
	}
	if got := send(t, v, "pod-a", "udp 10.1.1.2:1 -> 10.1.1.3:53"); !strings.HasPrefix(got, "dropped: vpp: drop: vpp crashed") {
		t.Errorf("a dead VPP forwards: %s", got)
	}
	v.Restart()
	if got := send(t, v, "pod-a", "udp 10.1.1.2:1 -> 10.1.1.3:53"); !strings.HasPrefix(got, "pod-b") || v.Crashed() != nil {
		t.Errorf("after the restart: %s, crashed %v", got, v.Crashed())
	}
}

// Vpp.md 3.2 A6: 256 locals crash VPP before it answers.
func TestCrashOnMessage(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	m := lbMapping(vip, 0)
	for i := len(m.Locals); i < 256; i++ {
		m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: [4]byte{10, 0, 0, byte(i)}, Port: 1, Probability: 1})
	}
	c.ask(m)
	if !c.dead() || v.Crashed() == nil || !strings.Contains(v.Crashed().Error(), "A6") {
		t.Errorf("crashed: %v", v.Crashed())
	}
	log := v.Log()
	if last := log[len(log)-1]; last.Name != "nat44_add_del_lb_static_mapping" {
		t.Errorf("the log ends with %s", last)
	}
}

func TestSnapshotExploresEveryBackend(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	c.must(lbMapping(vip, nat_types.NAT_IS_SELF_TWICE_NAT, "10.1.1.3", "10.1.2.9", "10.1.2.10"))
	mark := v.Snapshot()
	defer v.Release()
	var got []string
	for pick, n := 0, 1; pick < n; pick++ {
		v.SetChoice(func(of int) int { n = of; return pick })
		got = append(got, strings.Fields(send(t, v, "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]"))[4])
		if len(v.Sessions()) != 1 {
			t.Errorf("%d sessions", len(v.Sessions()))
		}
		v.Restore(mark)
	}
	if want := "[10.1.1.3:8080 10.1.2.9:8080 10.1.2.10:8080]"; fmt.Sprint(got) != want || len(v.Sessions()) != 0 {
		t.Errorf("backends %v, want %s; %d sessions left", got, want, len(v.Sessions()))
	}
}

func BenchmarkSendService(b *testing.B) {
	v := node(b, Config{})
	c := natOn(b, v)
	c.must(lbMapping(vip, nat_types.NAT_IS_SELF_TWICE_NAT, "10.1.1.3", "10.1.2.9", "10.1.2.10"))
	p, _ := packet.Parse("tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]")
	v.SetChoice(func(int) int { return 0 })
	mark := v.Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		v.Send("pod-a", p)
		v.Restore(mark)
	}
}

// TestComplaintsLiveLong: ICMP errors start with TTL 255, which the VPP that makes them does not decrement; VPP's other answers
// start with the TTL of hosts (VPP 24.06).
func TestComplaintsLiveLong(t *testing.T) {
	v := node(t, Config{})
	addRoute(t, v, "10.96.0.0/16", Path{Type: PathUnreach})
	for text, want := range map[string]uint8{
		"udp 10.1.1.2:40000 -> 10.96.0.1:53":              255,
		"udp 10.1.1.2:40000 -> 8.8.8.8:53 ttl 1":          255,
		"icmp 10.1.1.2 -> 10.1.1.1 echo-request id 1":     64,
		"udp 10.1.1.2:40000 -> 8.8.8.8:53":                63,
		"icmp 10.1.1.2 -> 10.1.1.3 echo-request id 1":     63,
		"icmp 10.1.1.2 -> 10.1.1.3 echo-reply id 1 ttl 9": 8,
	} {
		p, err := packet.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out := v.Send("pod-a", p).Out
		if len(out) != 1 || out[0].Packet.TTL != want {
			t.Errorf("%s: got %v, want one packet with ttl %d", text, out, want)
		}
	}
}
