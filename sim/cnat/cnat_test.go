package cnat

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// lab is an engine whose surroundings record its side effects.
type lab struct {
	*Engine
	t     *testing.T
	now   time.Duration
	addrs map[uint32][]netip.Addr
	owned map[netip.Addr]bool // exclusively?
	needs map[netip.Addr]int
	bad   bool // checksum of the last packet
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, addrs: map[uint32][]netip.Addr{}, owned: map[netip.Addr]bool{}, needs: map[netip.Addr]int{}}
	l.Engine = New(Config{Net: l, Now: func() time.Duration { return l.now }})
	return l
}

func (l *lab) Address(swIf uint32, v6 bool) (netip.Addr, bool) {
	i := slices.IndexFunc(l.addrs[swIf], func(a netip.Addr) bool { return a.Is6() == v6 })
	if i < 0 {
		return netip.Addr{}, false
	}
	return l.addrs[swIf][i], true
}

func (l *lab) Own(a netip.Addr, exclusive bool) { l.owned[a] = exclusive }
func (l *lab) Disown(a netip.Addr)              { delete(l.owned, a) }
func (l *lab) Track(a netip.Addr)               { l.needs[a]++ }

func (l *lab) Untrack(a netip.Addr) {
	if l.needs[a]--; l.needs[a] == 0 {
		delete(l.needs, a)
	}
}

func end(s string) Endpoint {
	if s == "" {
		return Endpoint{SwIf: None, Addr: netip.IPv4Unspecified()}
	}
	p := netip.MustParseAddrPort(s)
	return Endpoint{SwIf: None, Addr: p.Addr(), Port: p.Port()}
}

func of(vip string, backends ...string) Translation {
	t := Translation{VIP: end(vip), Proto: uint8(model.TCP)}
	for _, b := range backends {
		t.Paths = append(t.Paths, Path{Dst: end(b), Src: end("")})
	}
	return t
}

func (l *lab) update(t Translation) uint32 {
	l.t.Helper()
	id, rv := l.TranslationUpdate(t)
	if rv != OK {
		l.t.Fatalf("retval %d", rv)
	}
	return id
}

// TestAnew: since 26.06 a packet gets no other source where it leaves, unless its flow begins where it comes in. Before, an answer to a pod that reached itself by
// its own address got the node's, which the pod had not dialled. IPv6 addresses with the same last 32 bits count as one. And
// the answer to an echo of IPv6 whose sender got another address does not return to it.
func TestAnew(t *testing.T) {
	for _, c := range []struct {
		anew               bool
		back, suffix, pong string
	}{
		{false, "tcp [fd09::9]:49153 -> [fd01::3]:4000 [SA]", "tcp [fd01::3]:4000 -> [fd02::3]:8080 [S]", "icmpv6 fd09::9 -> fd01::3 echo-reply id 49152"},
		{true, "tcp [fd01::3]:8080 -> [fd01::3]:4000 [SA]", "tcp [fd09::9]:49153 -> [fd02::3]:8080 [S]", "icmpv6 fd01::3 -> fd09::9 echo-reply id 49152"},
	} {
		l := newLab(t)
		l.anew = c.anew
		l.SetSNATAddresses(netip.IPv4Unspecified(), netip.MustParseAddr("fd09::9"), None)
		l.SetSNATPolicy(SNATKubernetes)
		l.SNATPolicyInterface(2, true, Pod)
		through := func(p *packet.Packet) Result { return l.Output(p, 2, 2, l.Input(p).Flow) }
		for _, q := range [][2]string{
			{"tcp [fd01::3]:4000 -> [fd01::3]:8080 [S]", "tcp [fd09::9]:49152 -> [fd01::3]:8080 [S]"},
			{"tcp [fd01::3]:8080 -> [fd09::9]:49152 [SA]", c.back},
			{"tcp [fd01::3]:4000 -> [fd02::3]:8080 [S]", c.suffix},
			{"tcp [fd01::3]:4000 -> [fd02::4]:8080 [S]", "tcp [fd01::3]:4000 -> [fd02::4]:8080 [S]"},
			{"icmpv6 fd01::3 -> fd01::3 echo-request id 7", "icmpv6 fd09::9 -> fd01::3 echo-request id 49152"},
			{"icmpv6 fd01::4 -> fd09::9 echo-reply id 49152", "icmpv6 fd01::4 -> fd09::9 echo-reply id 49152"},
			{"icmpv6 fd01::3 -> fd09::9 echo-reply id 49152", c.pong},
		} {
			if got := l.pass(through, q[0]); got != q[1] {
				t.Errorf("anew %v: %s: got %s, want %s", c.anew, q[0], got, q[1])
			}
		}
		if got := l.pass(func(p *packet.Packet) Result { return l.Output(p, 2, 2, Flow{}) }, "tcp [fd01::5]:1 -> [fd01::5]:2 [S]"); c.anew != (got == "tcp [fd01::5]:1 -> [fd01::5]:2 [S]") {
			t.Errorf("anew %v, not looked up: got %s", c.anew, got)
		}
	}
}

// TestAnswersOfFrontend: since 26.06 the answers of an endpoint whose address is that of a frontend keep it, at other ports than the frontend's.
func TestAnswersOfFrontend(t *testing.T) {
	const answer = "tcp 10.1.1.1:8080 -> 10.1.1.2:4000 [SA]"
	for anew, want := range map[bool]string{false: "tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]", true: answer} {
		l := newLab(t)
		l.anew = anew
		l.update(of("10.96.0.10:80", "10.1.1.1:8080"))
		l.update(of("10.1.1.1:30080", "10.1.1.1:8080"))
		through := func(p *packet.Packet) Result { l.Input(p); return l.FIB(p) }
		if got, want := l.pass(through, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:4000 -> 10.1.1.1:8080 [S]"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if got := l.pass(l.out(3, 2), answer); got != want {
			t.Errorf("anew %v: got %s, want %s", anew, got, want)
		}
	}
}

// pass sends a packet through a node and returns the result.
func (l *lab) pass(node func(*packet.Packet) Result, text string) string {
	l.t.Helper()
	p, err := packet.Parse(text)
	if err != nil {
		l.t.Fatal(err)
	}
	r := node(&p)
	if r.Action == Drop {
		return "dropped: " + r.Text
	}
	out := strings.TrimSuffix(p.String(), " ttl 64")
	switch r.Action {
	case Forward:
		out += " by " + r.Backend.String()
	case Lookup:
		out += " by lookup"
	}
	return out
}

func (l *lab) out(rx, tx uint32) func(*packet.Packet) Result {
	return func(p *packet.Packet) Result { return l.Output(p, rx, tx, Flow{Looked: true}) }
}

func (l *lab) sessions() []string {
	var out []string
	for _, s := range l.Sessions() {
		out = append(out, s.String())
	}
	return out
}

func TestSessionsOfEachNode(t *testing.T) {
	l := newLab(t)
	tr := of("10.96.0.10:80", "10.1.1.3:8080")
	tr.Paths[0].Src = end("10.1.1.254:0")
	tr.Flags = AllocPort
	l.update(tr)
	for _, c := range []struct {
		name string
		node func(*packet.Packet) Result
		pkt  string
		want string
	}{
		{"in by the feature", l.Input, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]", "tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S]"},
		{"and out", l.out(3, 2), "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]", "tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"},
		{"in by the route", l.FIB, "tcp 10.1.1.2:4001 -> 10.96.0.10:80 [S]", "tcp 10.1.1.254:49152 -> 10.1.1.3:8080 [S] by 10.1.1.3"},
		{"and back", l.FIB, "tcp 10.1.1.3:8080 -> 10.1.1.254:49152 [SA]", "tcp 10.96.0.10:80 -> 10.1.1.2:4001 [SA] by lookup"},
		{"other port", l.FIB, "tcp 10.1.1.2:4001 -> 10.96.0.10:81 [S]", "tcp 10.1.1.2:4001 -> 10.96.0.10:81 [S]"},
		{"other protocol", l.Input, "udp 10.1.1.2:4001 -> 10.96.0.10:80", "udp 10.1.1.2:4001 -> 10.96.0.10:80"},
		{"a feature's session is not the route's", l.FIB, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [A]", "tcp 10.1.1.254:49153 -> 10.1.1.3:8080 [A] by 10.1.1.3"},
	} {
		if got := l.pass(c.node, c.pkt); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	want := []string{
		"input TCP 10.1.1.2:4000 -> 10.96.0.10:80 => 10.1.1.2:4000 -> 10.1.1.3:8080", "output TCP 10.1.1.3:8080 -> 10.1.1.2:4000 => 10.96.0.10:80 -> 10.1.1.2:4000",
		"fib TCP 10.1.1.2:4000 -> 10.96.0.10:80 => 10.1.1.254:49153 -> 10.1.1.3:8080", "fib TCP 10.1.1.2:4001 -> 10.96.0.10:80 => 10.1.1.254:49152 -> 10.1.1.3:8080",
		"fib TCP 10.1.1.3:8080 -> 10.1.1.254:49152 => 10.96.0.10:80 -> 10.1.1.2:4001", "fib TCP 10.1.1.3:8080 -> 10.1.1.254:49153 => 10.96.0.10:80 -> 10.1.1.2:4000",
	}
	if diff := cmp.Diff(want, l.sessions()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(map[netip.Addr]bool{netip.MustParseAddr("10.96.0.10"): false, netip.MustParseAddr("10.1.1.254"): false}, l.owned, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("addresses of ours: -want +got\n%s", diff)
	}
}

// TestRepliesLookAlike: two VIPs with one backend, one client port: any reply counts for the first flow.
func TestRepliesLookAlike(t *testing.T) {
	l := newLab(t)
	l.update(of("10.96.0.10:80", "10.1.1.3:8080"))
	l.update(of("10.96.0.11:80", "10.1.1.3:8080"))
	const reply, want = "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]", "tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"
	l.pass(l.Input, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]")
	l.pass(l.Input, "tcp 10.1.1.2:4000 -> 10.96.0.11:80 [S]")
	if got := l.pass(l.out(3, 2), reply); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestIdle: half a minute; an hour after the handshake; five seconds after FIN or RST.
func TestIdle(t *testing.T) {
	for _, c := range []struct {
		flags string // of a second packet, from the backend
		idle  time.Duration
	}{{"A", 30 * time.Second}, {"SA", time.Hour}, {"FA", 5 * time.Second}, {"R", 5 * time.Second}} {
		l := newLab(t)
		id := l.update(of("10.96.0.10:80", "10.1.1.3:8080"))
		l.pass(l.Input, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]")
		l.pass(l.out(3, 2), "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 ["+c.flags+"]")
		if rv := l.TranslationDel(id); rv != OK {
			t.Fatal(rv)
		}
		l.now += c.idle
		l.Expire()
		if n := len(l.sessions()); n != 2 || len(l.owned) != 1 {
			t.Errorf("%s: %d sessions, %v ours after exactly %s", c.flags, n, l.owned, c.idle)
		}
		l.now++
		l.Expire()
		if n := len(l.sessions()); n != 0 || len(l.owned) != 0 {
			t.Errorf("%s: %d sessions, %v ours after more than %s", c.flags, n, l.owned, c.idle)
		}
	}
}

func TestSNATPolicy(t *testing.T) {
	const pod, host, uplink, other = 1, 2, 3, 4
	l := newLab(t)
	l.SetSNATAddresses(netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd00::9"), None)
	l.SNATPolicyInterface(pod, true, Pod)
	l.SNATPolicyInterface(pod, true, IncludeV4)
	l.SNATPolicyInterface(host, true, Host)
	l.SNATExcludePrefix(netip.MustParsePrefix("10.1.0.0/16"), true)
	for _, c := range []struct {
		policy   Policy
		rx, tx   uint32
		src, dst string
		want     bool
	}{
		{SNATAll, pod, pod, "10.1.1.2", "10.1.1.3", true},
		{SNATByPrefix, pod, uplink, "10.1.1.2", "9.9.9.9", true},
		{SNATByPrefix, pod, uplink, "10.1.1.2", "10.1.2.2", false},
		{SNATByPrefix, uplink, pod, "9.9.9.9", "8.8.8.8", false},
		{SNATKubernetes, pod, uplink, "10.1.1.2", "9.9.9.9", true},
		{SNATKubernetes, pod, uplink, "fd00:1::2", "2001:db8::9", false}, // not in the table of IPv6
		{SNATKubernetes, pod, uplink, "10.1.1.2", "10.1.2.2", false},
		{SNATKubernetes, pod, host, "10.1.1.2", "9.9.9.9", false},
		{SNATKubernetes, pod, pod, "10.1.1.2", "10.1.1.2", true}, // itself
		{SNATKubernetes, uplink, pod, "9.9.9.9", "10.1.1.2", false},
		{SNATKubernetes, uplink, other, "9.9.9.9", "10.1.2.2", true}, // the reply must come through this node
		{SNATKubernetes, uplink, other, "10.9.9.9", "10.1.2.2", false},
		{SNATKubernetes, uplink, other, "fd00::9", "fd00:1::2", false},
		{SNATKubernetes, uplink, other, "2001:db8::9", "fd00:1::2", true},
	} {
		l.SetSNATPolicy(c.policy)
		k := sessionKey{Tuple: Tuple{Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr(c.dst)}}
		if got := l.wanted(&k, c.rx, c.tx); got != c.want {
			t.Errorf("%d: %s (%d) -> %s (%d): %v", c.policy, c.src, c.rx, c.dst, c.tx, got)
		}
	}
	if rv := l.SetSNATPolicy(3); rv != Refused {
		t.Errorf("policy 3: %d", rv)
	}
}

// TestPortsRunOut: the end of a flow frees the port with the bytes swapped. After all ports were in use at once, three in four are
// lost; of the others one may be allocated while another flow has it.
func TestPortsRunOut(t *testing.T) {
	l := newLab(t)
	l.SetSNATAddresses(netip.MustParseAddr("10.9.9.9"), netip.IPv6Unspecified(), None)
	many := func(client string) (ports []int) {
		for n := 0; ; n++ {
			var p, to int
			got := l.pass(l.out(1, 3), fmt.Sprintf("udp %s:%d -> 9.9.9.9:53", client, 1024+n))
			if strings.HasPrefix(got, "dropped") {
				return ports
			}
			if _, err := fmt.Sscanf(got, "udp 10.9.9.9:%d -> 9.9.9.9:%d", &p, &to); err != nil {
				t.Fatalf("flow %d: %s: %v", n, got, err)
			}
			ports = append(ports, p)
		}
	}
	if n := len(many("10.1.1.2")); n != 1<<16-1-int(FirstPort) {
		t.Errorf("there are ports for %d flows", n)
	}
	l.now += time.Minute
	l.Expire()
	left := many("10.1.1.3")
	if n := len(left); n != 64*64-1 {
		t.Errorf("there are ports for %d flows after that", n)
	}
	for _, p := range left {
		if p>>8 < 0xC0 || p&0xff < 0xC0 {
			t.Errorf("port %#x could not have been given back", p)
		}
	}
}

// TestInterfaceAddresses: a VIP given by an interface follows its first address, and the old address remains.
func TestInterfaceAddresses(t *testing.T) {
	l := newLab(t)
	tr := of("10.96.0.10:80", "10.1.1.3:8080")
	tr.VIP = Endpoint{SwIf: 7, Addr: netip.IPv4Unspecified(), Port: 80}
	l.update(tr)
	reaches := func(vip string) bool {
		return strings.Contains(l.pass(l.Input, "tcp 10.1.1.2:4000 -> "+vip+":80 [S]"), "10.1.1.3:8080")
	}
	change := func(a string, add bool) {
		addr := netip.MustParseAddr(a)
		if l.addrs[7] = slices.DeleteFunc(l.addrs[7], func(o netip.Addr) bool { return o == addr }); add {
			l.addrs[7] = append(l.addrs[7], addr)
		}
		l.AddressChanged(7, addr, add)
	}
	if reaches("192.168.16.1") {
		t.Error("before it has an address")
	}
	change("fd00::1", true) // not its family
	change("192.168.16.1", true)
	change("192.168.16.2", true)
	if !reaches("192.168.16.1") || reaches("192.168.16.2") {
		t.Error("it is not at the first address alone")
	}
	l.Purge()
	l.update(tr)
	change("192.168.16.1", false)
	if reaches("192.168.16.1") || !reaches("192.168.16.2") {
		t.Error("it does not follow the address")
	}
	if _, left := l.owned[netip.MustParseAddr("192.168.16.1")]; !left {
		t.Error("the old address is no longer the plugin's, as it is in VPP")
	}
}

// TestPathsThatWait: a path with an interface as source, or without one, is not used before the interface has an address.
func TestPathsThatWait(t *testing.T) {
	l := newLab(t)
	tr := of("10.96.0.10:80", "10.1.1.3:8080", "10.1.1.4:8080")
	tr.Paths[0].Src.SwIf = 0
	l.update(tr)
	if diff := cmp.Diff(map[netip.Addr]int{netip.MustParseAddr("10.1.1.4"): 1}, l.needs, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	l.update(of("10.96.0.10:80", "10.1.1.3:8080"))
	if l.needs[netip.MustParseAddr("10.1.1.4")] != 0 {
		t.Error("an endpoint that went is still needed")
	}
}

// TestBalance: shares are fair, and fields outside of VPP's hash have no effect. (Tests on the real VPP compare the chosen
// endpoints.)
func TestBalance(t *testing.T) {
	backends := []string{"10.1.1.3:8080", "10.1.1.4:8080", "10.1.2.2:8080", "10.1.2.3:8080", "10.1.3.2:8080"}
	for name, change := range map[string]func(*Translation){
		"by number": func(*Translation) {}, "Maglev": func(t *Translation) { t.LB = Maglev },
		"by client": func(t *Translation) { t.LB, t.Hash = Maglev, HashSrc },
	} {
		l := newLab(t)
		tr := of("10.96.0.10:80", backends...)
		change(&tr)
		l.update(tr)
		got := map[string]int{}
		for i := range 2000 {
			client := fmt.Sprintf("10.2.%d.%d", i/200, i%200)
			pick := func(port int) string {
				out := l.pass(l.Input, fmt.Sprintf("tcp %s:%d -> 10.96.0.10:80 [S]", client, port))
				return out[strings.Index(out, "-> "):]
			}
			first := pick(1000)
			got[first]++
			if name == "by client" && pick(1001) != first {
				t.Fatalf("%s: %s has two endpoints", name, client)
			}
		}
		for b, n := range got {
			if n < 300 || n > 500 {
				t.Errorf("%s: %s has %d of 2000", name, b, n)
			}
		}
		if len(got) != len(backends) {
			t.Errorf("%s: %d endpoints of %d", name, len(got), len(backends))
		}
	}
}

// TestMaglevIsSteady: after the removal of one of ten endpoints, few flows of the others change theirs.
func TestMaglevIsSteady(t *testing.T) {
	var paths []Path
	for i := range 10 {
		paths = append(paths, Path{Dst: end(fmt.Sprintf("10.1.1.%d:8080", i+1))})
	}
	before, after := maglevTable(paths, nil), maglevTable(paths[:9], nil)
	moved := 0
	for i := range before {
		if before[i] != 9 && before[i] != after[i] {
			moved++
		}
	}
	if moved > maglevLen/10 {
		t.Errorf("%d of %d places moved", moved, maglevLen)
	}
}

func TestRestore(t *testing.T) {
	l := newLab(t)
	l.update(of("10.96.0.10:80", "10.1.1.3:8080"))
	l.SetSNATAddresses(netip.MustParseAddr("10.9.9.9"), netip.IPv6Unspecified(), None)
	play := func(n int) {
		for i := range n {
			l.pass(l.FIB, fmt.Sprintf("tcp 10.1.1.%d:4000 -> 10.96.0.10:80 [S]", i+2))
			l.pass(l.out(1, 3), fmt.Sprintf("udp 10.1.1.2:%d -> 9.9.9.9:53", 4000+i))
			l.now += 4 * time.Second
			l.Expire()
		}
	}
	state := func() string { return fmt.Sprint(l.sessions(), l.owned, l.ports[1].taken(FirstPort+1), l.clients) }
	play(5)
	now, before, mark := l.now, state(), l.Snapshot()
	play(20)
	if state() == before {
		t.Fatal("nothing happened")
	}
	l.now = now
	l.Restore(mark)
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("-before +after\n%s", diff)
	}
	l.Release()
}

// TestErrorsAboutFragments: an ICMPv6 error about a fragment is known by the fragment header, which VPP takes for ports. VPP does not translate
// the quoted packet, and leaves the checksum as it was. In IPv4 it takes the first bytes of a later fragment for ports, and leaves changes of
// port 0 out of the checksum, but not those of identifiers.
func TestErrorsAboutFragments(t *testing.T) {
	l := newLab(t)
	l.echo = true
	l.SetSNATAddresses(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), None)
	for _, c := range []struct{ pkt, want, session string }{
		{
			"icmpv6 fd00:1::2 -> fd00:1::3 type 3 code 0 about (udp [fd00:1::3]:4000 -> [fd00:1::2]:53 fragment 7 offset 0 length 24 more)",
			"icmpv6 2001:db8::1 -> fd00:1::3 type 3 code 0 about (udp [fd00:1::3]:4000 -> [fd00:1::2]:53 fragment 7 offset 0 length 24 more) bad checksum",
			"output proto-44 [fd00:1::2]:1 -> [fd00:1::3]:4352 => [2001:db8::1]:49152 -> [fd00:1::3]:49152",
		},
		{
			"icmpv6 fd00:1::4 -> fd00:1::3 type 1 code 0 about (icmpv6 fd00:1::3 -> fd00:1::2 type 0 code 0 fragment 7 offset 24 length 24)",
			"icmpv6 fd00:1::4 -> fd00:1::3 type 1 code 0 about (icmpv6 fd00:1::3 -> fd00:1::2 type 0 code 0 fragment 7 offset 24 length 24)",
			"output proto-44 [fd00:1::2]:24 -> [fd00:1::3]:14848 => [2001:db8::1]:49153 -> [fd00:1::3]:49153",
		},
		{
			"icmp 10.1.1.2 -> 10.1.1.3 type 11 code 0 about (udp 10.1.1.3:0 -> 10.1.1.2:0 fragment 7 offset 24 length 24)",
			"icmp 192.0.2.1 -> 10.1.1.3 type 11 code 0 about (udp 10.1.1.3:49152 -> 192.0.2.1:49152 fragment 7 offset 24 length 24) bad checksum",
			"output UDP 10.1.1.2:0 -> 10.1.1.3:0 => 192.0.2.1:49152 -> 10.1.1.3:49152",
		},
		{
			"icmp 10.1.1.2 -> 10.1.1.3 type 11 code 0 about (icmp 10.1.1.3 -> 10.1.1.2 echo-reply id 0 fragment 7 offset 24 length 24)",
			"icmp 192.0.2.1 -> 10.1.1.3 type 11 code 0 about (icmp 10.1.1.3 -> 192.0.2.1 echo-reply id 49153 fragment 7 offset 24 length 24)",
			"output ICMP 10.1.1.2:0 -> 10.1.1.3:0 => 192.0.2.1:49153 -> 10.1.1.3:49153",
		},
	} {
		got := l.pass(func(p *packet.Packet) Result {
			r := l.Output(p, 2, 3, Flow{Looked: true})
			l.bad = r.BadChecksum
			return r
		}, c.pkt)
		if l.bad {
			got += " bad checksum"
		}
		if got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if list := l.sessions(); !slices.Contains(list, c.session) {
			t.Errorf("no session %s: %v", c.session, list)
		}
	}
}
