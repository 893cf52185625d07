package nat44ed

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// step is one request and VPP's retval.
type step struct {
	name string
	do   func(l *lab) int32
	want int32
}

func run(t *testing.T, l *lab, steps []step) {
	t.Helper()
	for i, s := range steps {
		if got := s.do(l); got != s.want {
			t.Errorf("step %d, %s: retval %d, want %d", i+1, s.name, got, s.want)
		}
	}
}

func add(m LBMapping) func(*lab) int32 {
	return func(l *lab) int32 { return l.AddDelLBStaticMapping(true, m) }
}

func del(m LBMapping) func(*lab) int32 {
	return func(l *lab) int32 { return l.AddDelLBStaticMapping(false, m) }
}

func addLocal(x Local) func(*lab) int32 {
	return func(l *lab) int32 { return l.LBStaticMappingAddDelLocal(true, addr(vip), 80, protoTCP, x) }
}

func delLocal(x Local) func(*lab) int32 {
	return func(l *lab) int32 { return l.LBStaticMappingAddDelLocal(false, addr(vip), 80, protoTCP, x) }
}

func single(ext, loc string, f Flags) StaticMapping {
	return StaticMapping{
		External: addr(ext), ExternalPort: 80, Local: addr(loc), LocalPort: 8080, Proto: protoTCP, ExternalIf: None, Flags: f,
	}
}

func addStatic(m StaticMapping) func(*lab) int32 {
	return func(l *lab) int32 { return l.AddDelStaticMapping(true, m) }
}

func delStatic(m StaticMapping) func(*lab) int32 {
	return func(l *lab) int32 { return l.AddDelStaticMapping(false, m) }
}

var (
	backA = local("10.1.1.2", 1)
	backB = local("10.1.1.3", 1)
	backC = local("10.1.1.4", 1)
)

func with(m LBMapping, change func(*LBMapping)) LBMapping {
	change(&m)
	return m
}

func TestA1AddLBMapping(t *testing.T) {
	two := lbMapping(backA, backB)
	noO2I := func(m *LBMapping) { m.Flags = SelfTwiceNAT }
	run(t, newLab(t), []step{{"plugin disabled", add(two), Unsupported}})
	run(t, service(t), []step{
		{"one local", add(lbMapping(backA)), InvalidValue},
		{"no local", add(lbMapping()), InvalidValue},
		{"without out2in-only, external not in the pool", add(with(two, noO2I)), NoSuchEntry},
		{"two locals", add(two), OK},
		{"again", add(two), ValueExist},
		{"other locals, other flags", add(with(lbMapping(backB, backC), noO2I)), ValueExist},
		{"another protocol", add(with(two, func(m *LBMapping) { m.Proto = protoUDP })), OK},
		{"single mapping of the same end", addStatic(single(vip, "10.1.1.2", Out2InOnly)), ValueExist},
		{"twice the same local", add(with(lbMapping(backB, backB), func(m *LBMapping) { m.Port = 81 })), OK},
		{"without out2in-only, external in the pool", add(with(two, func(m *LBMapping) { m.Flags, m.External = 0, addr("192.168.16.1") })), OK},
		{"single without out2in-only, local in a mapping", addStatic(single("10.96.0.11", "10.1.1.2", 0)), ValueExist},
	})
}

// Without out2in-only, packets that a backend sends from its service port leave with the VIP as source.
func TestA1WithoutOut2InOnlyBackendsAreTranslated(t *testing.T) {
	l := service(t)
	l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(backA, backB), func(m *LBMapping) { m.Flags, m.External = 0, addr("192.168.16.1") })))
	l.want(l.out(podA, uplink, "tcp 10.1.1.2:8080 -> 8.8.8.8:53 [S]"), "tcp 192.168.16.1:80 -> 8.8.8.8:53 [S]")
	l.want(l.out(podA, uplink, "tcp 10.1.1.2:8081 -> 8.8.8.8:53 [S]"), "tcp 192.168.16.1:8081 -> 8.8.8.8:53 [S]")
}

func TestA2PadsAreNeverSelected(t *testing.T) {
	l := service(t)
	l.lb(pad(1), pad(2), backB)
	for port := 4000; port < 4100; port++ {
		l.want(l.in(podA, fmt.Sprintf("tcp 10.1.1.2:%d -> 10.96.0.10:80 [S]", port)), fmt.Sprintf("tcp 10.1.1.2:%d -> 10.1.1.3:8080 [S]", port))
	}
	run(t, l, []step{
		{"add one", addLocal(backC), OK},
		{"remove one", delLocal(backB), OK},
		{"no further than two, pads counted", delLocal(Local{Addr: addr("192.0.2.1"), Port: 1}), OK},
		{"and not below", delLocal(backC), Unspecified},
	})
}

func TestA3AddDelLocal(t *testing.T) {
	run(t, newLab(t), []step{{"plugin disabled", addLocal(backA), Unsupported}})
	l := service(t)
	run(t, l, []step{
		{"no mapping", addLocal(backA), NoSuchEntry},
		{"a single mapping", addStatic(single(vip, "10.1.1.2", Out2InOnly)), OK},
		{"is not load balancing", addLocal(backB), InvalidValue},
		{"is not load balancing", delLocal(backA), InvalidValue},
		{"gone", delStatic(single(vip, "10.1.1.2", Out2InOnly)), OK},
		{"two", add(lbMapping(backA, backB)), OK},
		{"duplicate", addLocal(backA), ValueExist},
		{"duplicate with other weight", addLocal(local("10.1.1.2", 9)), ValueExist},
		{"absent", delLocal(backC), NoSuchEntry},
		{"only two left", delLocal(backA), Unspecified},
		{"third", addLocal(backC), OK},
		{"three left; the weight is not looked at", delLocal(local("10.1.1.2", 77)), OK},
		{"slot is taken again", addLocal(local("10.1.1.9", 1)), OK},
	})
	want := []Local{local("10.1.1.9", 1), backB, backC}
	if diff := cmp.Diff(want, l.LBStaticMappings()[0].Locals, cmpAddr); diff != "" {
		t.Errorf("locals in slot order (-want +got):\n%s", diff)
	}
	run(t, l, []step{{"other table", addLocal(Local{Addr: addr("10.1.1.2"), Port: 8080, Probability: 1, VRF: 7}), OK}})
	if !l.HasTable(7) {
		t.Error("a local's table is not made")
	}
}

var cmpAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestA3SlotsAreReusedLastFreedFirst(t *testing.T) {
	l := service(t)
	l.lb(pad(1), pad(2), backA, backB)
	run(t, l, []step{
		{"", delLocal(pad(1)), OK}, {"", delLocal(pad(2)), OK}, {"", addLocal(pad(1)), OK}, {"", addLocal(pad(2)), OK},
	})
	if diff := cmp.Diff([]Local{pad(2), pad(1), backA, backB}, l.LBStaticMappings()[0].Locals, cmpAddr); diff != "" {
		t.Error(diff)
	}
}

func TestA4Deletes(t *testing.T) {
	l := service(t)
	m := lbMapping(backA, backB)
	asSingle := single(vip, "10.1.1.2", Out2InOnly)
	run(t, l, []step{
		{"absent", del(m), NoSuchEntry},
		{"add", add(m), OK},
		{"by the single message: no error", delStatic(asSingle), OK},
	})
	if got := len(l.LBStaticMappings()); got != 1 {
		t.Fatalf("%d mappings after the single message, want 1", got)
	}
	l.want(l.in(podA, "tcp 10.1.1.9:1 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.9:1 -> 10.1.1.3:8080 [S]")
	run(t, l, []step{
		{"other flags, no locals", del(LBMapping{External: addr(vip), Port: 80, Proto: protoTCP}), OK},
		{"is gone", del(m), NoSuchEntry},
		{"single", addStatic(asSingle), OK},
		{"LB message on a single one", del(m), InvalidValue},
		{"another local in the request", delStatic(single(vip, "10.9.9.9", Out2InOnly)), OK},
		{"is gone", delStatic(asSingle), NoSuchEntry},
	})
	// The plugin's two locks less the one that the single message released without holding it.
	if l.locks[0] != 1 {
		t.Errorf("table 0 has %d locks, want 1", l.locks[0])
	}
}

func TestA5Weights(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint8
		want    []int // how many of the 255 numbers of a round select each local; nil: VPP crashes
	}{
		{"even", []uint8{1, 1}, []int{1, 1}},
		{"exact", []uint8{50, 200}, []int{50, 200}},
		{"three to one with pads", []uint8{0, 0, 3, 1}, []int{0, 0, 3, 1}},
		{"zero in the middle", []uint8{2, 0, 3}, []int{2, 0, 3}},
		{"sum 255", []uint8{100, 100, 55}, []int{100, 100, 55}},
		{"sum 260 wraps to 4: all to the first", []uint8{100, 100, 60}, []int{4, 0, 0}},
		{"sum 256", []uint8{128, 128}, nil},
		{"sum 0", []uint8{0, 0}, nil},
		{"sum 512", []uint8{255, 255, 2}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := service(t)
			var next uint32
			l.rand = func() uint32 { next++; return next - 1 }
			var locals []Local
			for i, w := range c.weights {
				locals = append(locals, Local{Addr: netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}), Port: 1, Probability: w})
			}
			l.lb(locals...)
			if c.want == nil {
				l.dies(func() { l.in(podA, "tcp 10.1.1.2:1 -> 10.96.0.10:80 [S]") }, "3.2 A5")
				return
			}
			total := 0
			for _, n := range c.want {
				total += n
			}
			got := make([]int, len(c.want))
			for i := range total {
				to := l.in(podA, fmt.Sprintf("tcp 10.1.1.2:%d -> 10.96.0.10:80 [S]", i+1))
				var n int
				if _, err := fmt.Sscanf(to[strings.Index(to, "-> ")+3:], "10.1.2.%d:1", &n); err != nil {
					t.Fatal(to, err)
				}
				got[n]++
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("one round of random numbers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestA5ChoiceIsAmongReachableLocals(t *testing.T) {
	for name, c := range map[string]struct {
		weights []uint8
		want    int
	}{"pads": {[]uint8{0, 0, 3, 1}, 2}, "wrapped": {[]uint8{100, 100, 60}, 1}} {
		l := service(t)
		var locals []Local
		for i, w := range c.weights {
			locals = append(locals, Local{Addr: netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}), Port: 1, Probability: w})
		}
		l.lb(locals...)
		asked := 0
		l.SetChoice(func(n int) int { asked = n; return n - 1 })
		got := l.in(podA, "tcp 10.1.1.2:1 -> 10.96.0.10:80 [S]")
		if asked != c.want {
			t.Errorf("%s: asked to choose of %d, want %d (%s)", name, asked, c.want, got)
		}
		if name == "pads" {
			l.want(got, "tcp 10.1.1.2:1 -> 10.1.2.3:1 [S]")
		}
	}
}

func TestA6LocalsByTheHundred(t *testing.T) {
	many := func(n int) []Local {
		out := make([]Local, n)
		for i := range out {
			out[i] = Local{Addr: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), Port: 1, Probability: 1}
		}
		return out
	}
	l := service(t)
	l.lb(many(255)...)
	l.want(l.in(podA, "tcp 10.1.1.2:1 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:1 -> 10.9.0.253:1 [S]")
	l.ok(addLocal(Local{Addr: addr("10.8.0.1"), Port: 1, Probability: 1})(l))
	l.dies(func() { l.in(podA, "tcp 10.1.1.2:2 -> 10.96.0.10:80 [S]") }, "3.2 A5")
	l = service(t)
	l.dies(func() { l.lb(many(256)...) }, "3.2 A6")
	l = newLab(t)
	l.dies(func() { l.AddDelLBStaticMapping(false, lbMapping(many(256)...)) }, "3.2 A6")
}

func TestA8TwiceNAT(t *testing.T) {
	both := with(lbMapping(backA, backB), func(m *LBMapping) { m.Flags = TwiceNAT | SelfTwiceNAT | Out2InOnly })
	l := service(t)
	run(t, l, []step{
		{"both kinds", add(both), OK},
		{"twice-nat of an address only", addStatic(single("10.96.0.11", "10.1.1.2", TwiceNAT|AddrOnly)), Unsupported},
		{"self-twice-nat of an address only", addStatic(single("10.96.0.11", "10.1.1.2", SelfTwiceNAT|AddrOnly)), Unsupported},
		{"self-twice-nat", addStatic(single("10.96.0.11", "10.1.1.2", SelfTwiceNAT|Out2InOnly)), OK},
	})
	if got := l.LBStaticMappings()[0].Flags; got != TwiceNAT|Out2InOnly {
		t.Errorf("flags %d, want 5: twice-nat wins", got)
	}
	got := l.in(podC, "tcp 10.1.1.4:7 -> 10.96.0.10:80 [S]")
	if !strings.HasPrefix(got, "tcp 10.2.1.254:") {
		t.Errorf("twice-nat: %s", got)
	}
	l.want(l.in(podA, "tcp 10.1.1.3:7 -> 10.96.0.11:80 [S]"), "tcp 10.1.1.3:7 -> 10.1.1.2:8080 [S]")
}

func TestA8WithoutTwiceNATPool(t *testing.T) {
	l := service(t)
	l.ok(l.AddDelAddressRange(false, AddressRange{First: addr("10.2.1.254"), Last: addr("10.2.1.254"), Flags: TwiceNAT}))
	l.lb(pad(1), backA)
	l.want(l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]"), "drop: nat44-ed-out2in-slowpath: out of ports")
	l.want(l.in(podB, "tcp 10.1.1.3:7 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.3:7 -> 10.1.1.2:8080 [S]")
	if got := len(l.Sessions()); got != 1 {
		t.Errorf("%d sessions, want 1: %v", got, l.Sessions())
	}
	// Without the flag the pod gets a packet from itself.
	l = service(t)
	l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), backA), func(m *LBMapping) { m.Flags = Out2InOnly })))
	l.want(l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:7 -> 10.1.1.2:8080 [S]")
}

func TestA8ExactTwiceNATAddress(t *testing.T) {
	l := service(t)
	l.pool("10.2.1.253", TwiceNAT)
	l.pool("10.2.1.252", TwiceNAT)
	for i, want := range []string{"10.2.1.252", "10.2.1.253"} {
		m := single(fmt.Sprintf("10.96.1.%d", i), "10.1.1.2", TwiceNAT|Out2InOnly)
		m.Pool = addr(want)
		l.ok(l.AddDelStaticMapping(true, m))
		got := l.in(podB, fmt.Sprintf("tcp 10.1.1.3:7 -> 10.96.1.%d:80 [S]", i))
		if !strings.HasPrefix(got, "tcp "+want+":") {
			t.Errorf("got %s, want source %s", got, want)
		}
	}
}

func TestA9Echo(t *testing.T) {
	l := service(t)
	l.lb(backA, backB)
	l.want(l.in(podC, "icmp 10.1.1.4 -> 10.96.0.10 echo-request id 7"), "icmp 10.1.1.4 -> 10.96.0.10 echo-request id 7")
	m := StaticMapping{External: addr("10.96.0.12"), Local: addr("10.1.1.2"), ExternalIf: None, Flags: AddrOnly}
	l.ok(l.AddDelStaticMapping(true, m))
	l.want(l.in(podC, "icmp 10.1.1.4 -> 10.96.0.12 echo-request id 7"), "icmp 10.1.1.4 -> 10.1.1.2 echo-request id 7")
	l.want(l.in(podA, "icmp 10.1.1.2 -> 10.1.1.4 echo-reply id 7"), "icmp 10.96.0.12 -> 10.1.1.4 echo-reply id 7")
	l.want(l.in(podC, "icmp 10.1.1.4 -> 10.96.0.12 type 13 code 0"), "drop: nat44-ed-out2in: unsupported ICMP type")
}

// VPP translates protocols without ports unconditionally. Packets of a pod by an inside interface get the pool's address,
// load-balancing mappings do not apply, and replies reach the pod that last sent to the host.
func TestA9OtherProtocolsFromInside(t *testing.T) {
	l := service(t)
	l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(backA, backB), func(m *LBMapping) { m.Proto = 132 })))
	l.want(l.in(podC, "sctp 10.1.1.4:7 -> 10.96.0.10:80"), "sctp 192.168.16.1:7 -> 10.96.0.10:80")
	l.want(l.in(podC, "proto-47 10.1.1.4 -> 10.1.1.3"), "proto-47 192.168.16.1 -> 10.1.1.3")
	l.want(l.in(podB, "proto-47 10.1.1.3 -> 192.168.16.1"), "proto-47 10.1.1.3 -> 10.1.1.4")
	l.want(l.in(podA, "proto-47 10.1.1.2 -> 10.1.1.3"), "proto-47 192.168.16.1 -> 10.1.1.3")
	l.want(l.in(podB, "proto-47 10.1.1.3 -> 192.168.16.1"), "proto-47 10.1.1.3 -> 10.1.1.2")
	l.ok(l.AddDelAddressRange(false, AddressRange{First: addr("192.168.16.1"), Last: addr("192.168.16.1")}))
	l.want(l.in(podA, "proto-50 10.1.1.2 -> 10.1.1.3"), "drop: nat44-ed-in2out-slowpath: no address for this protocol")
}

// From outside such a protocol matches a mapping only if that has port 0 and the protocol; the reply finds no flow.
func TestA9OtherProtocolsFromOutside(t *testing.T) {
	l := service(t)
	m := StaticMapping{External: addr("10.96.0.12"), Local: addr("10.1.1.2"), Proto: 132, ExternalIf: None, Flags: Out2InOnly}
	l.ok(l.AddDelStaticMapping(true, m))
	l.want(l.in(uplink, "sctp 8.8.8.8:7 -> 10.96.0.12:80"), "sctp 8.8.8.8:7 -> 10.1.1.2:80")
	l.want(l.in(uplink, "sctp 8.8.8.8:7 -> 10.96.0.13:80"), "sctp 8.8.8.8:7 -> 10.96.0.13:80")
	l.want(l.in(podA, "sctp 10.1.1.2:80 -> 8.8.8.8:7"), "drop: nat44-ed-in2out-slowpath: out2in flow hash add failed")
	l.ok(l.ForwardingEnableDisable(false))
	l.want(l.in(uplink, "sctp 8.8.8.8:7 -> 10.96.0.13:80"), "drop: nat44-ed-out2in-slowpath: no translation")
}
