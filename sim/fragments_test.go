package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/sim/reassembly"
)

// sendAll sends a packet and returns what leaves, as text.
func sendAll(t *testing.T, v *VPP, text string) string {
	t.Helper()
	p, err := packet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range v.Send("pod-a", p).Out {
		out = append(out, fmt.Sprintf("%d@%d", o.Packet.Fragment.ID, o.Packet.Fragment.Offset))
	}
	return strings.Join(out, " ")
}

func fragment(id, at int) string {
	ports := [2]string{":0", ":0"}
	if at == 0 {
		ports = [2]string{":5000", ":53"}
	}
	return fmt.Sprintf("udp 10.1.1.2%s -> 10.1.1.3%s fragment %d offset %d length 24 more", ports[0], ports[1], id, at)
}

// TestFragmentsWait: with NAT44 later fragments wait for the first one of their datagram, as long and as many as VPP's limits say.
func TestFragmentsWait(t *testing.T) {
	v := node(t, Config{})
	natOn(t, v)
	want := func(when, text, want string) {
		t.Helper()
		if got := sendAll(t, v, text); got != want {
			t.Errorf("%s: got %q want %q", when, got, want)
		}
	}
	want("first", fragment(1, 0), "1@0")
	want("later", fragment(1, 24), "1@24")
	v.Advance(90 * time.Millisecond)
	want("later, the last one was 90 ms ago", fragment(1, 48), "1@48")
	v.Advance(90 * time.Millisecond)
	want("later, once more", fragment(1, 48), "1@48")
	v.Advance(110 * time.Millisecond)
	want("too late", fragment(1, 72), "")
	want("wrong order", fragment(2, 24), "")
	want("wrong order", fragment(2, 48), "")
	want("those that wait come first", fragment(2, 0), "2@24 2@48 2@0")
	for i := range 4 {
		want("too many", fragment(3, 24+24*i), "")
	}
	want("they are gone", fragment(3, 0), "3@0")
	want("no ports", strings.Replace(fragment(4, 0), ":53", ":0", 1), "")
	outside := func(text string) string { return strings.ReplaceAll(text, "10.1.1.3", "8.8.8.8") }
	want("to an address outside: the output makes the session", outside(fragment(7, 0)), "7@0")
	want("the input knows it, and the output knows no first fragment from the node's address", outside(fragment(7, 24)), "")
	want("the flow's next datagram", outside(fragment(8, 0)), "8@0")
	want("its later fragment", outside(fragment(8, 24)), "8@24")
	mark := v.Snapshot()
	want("before the mark is restored", fragment(5, 0), "5@0")
	v.Restore(mark)
	want("after it", fragment(5, 24), "")
	want("another datagram", fragment(6, 0), "6@0")
	for id := range reassembly.Defaults().Most {
		sendAll(t, v, fragment(1000+id, 24))
	}
	want("the oldest is forgotten", fragment(6, 24), "")
	v.Restart()
	if v.held.Limits != reassembly.Defaults() {
		t.Errorf("a VPP that restarts has the limits %+v", v.held.Limits)
	}
}

// TestFragmentsOfRemovedInterfaces: a fragment that waits where it leaves, by an interface that is removed, is lost. The first one of its datagram
// leaves by another interface.
func TestFragmentsOfRemovedInterfaces(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	v.AddInterface(Interface{Name: "host"})
	v.AddInterface(Interface{Name: "other", Addresses: prefixes("192.168.17.1/24")})
	send := func(at int) []Output {
		t.Helper()
		p, err := packet.Parse(strings.ReplaceAll(fragment(1, at), "10.1.1.3", "8.8.8.8"))
		if err != nil {
			t.Fatal(err)
		}
		return v.Send("host", p).Out
	}
	if out := send(24); len(out) != 0 {
		t.Fatalf("%v left before the first fragment", out)
	}
	v.RemoveInterface("uplink")
	addRoute(t, v, "0.0.0.0/0", Path{Interface: "other", Via: netip.MustParseAddr("192.168.17.100")})
	c.must(&nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: true, SwIfIndex: index(v, "other")})
	if out := send(0); len(out) != 1 || out[0].Interface != "other" {
		t.Errorf("%v", out)
	}
}

// TestReassemblyLimits: a message changes them, until VPP restarts.
func TestReassemblyLimits(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	c.must(&ip.IPReassemblySet{TimeoutMs: 2000, MaxReassemblies: 5, MaxReassemblyLength: 7, Type: ip.IP_REASS_TYPE_SHALLOW_VIRTUAL})
	if got, want := v.held.Limits, (reassembly.Limits{Timeout: 2 * time.Second, Most: 5, Waiting: 7}); got != want {
		t.Errorf("got %+v want %+v", got, want)
	}
	c.must(&ip.IPReassemblySet{TimeoutMs: 1, Type: ip.IP_REASS_TYPE_FULL})
	if v.held.Limits.Timeout != 2*time.Second {
		t.Error("limits of full reassembly changed those of shallow virtual reassembly")
	}
}

// TestFragmentsInOneVector: those that waited go on with the first one, node by node. The slow path of NAT44 looks for a session that one of
// them made before, but not for one of ICMP: it takes them for translated already, and they leave as they are.
func TestFragmentsInOneVector(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"udp 10.1.1.2:5000 -> 8.8.8.8:53", "192.168.16.1 192.168.16.1 192.168.16.1"},
		{"icmp 10.1.1.2 -> 8.8.8.8 echo-request id 7", "192.168.16.1 10.1.1.2 10.1.1.2"},
		{"icmp 10.1.1.2 -> 8.8.8.8 type 8 code 1 id 7", "192.168.16.1 10.1.1.2 10.1.1.2"},
	} {
		v := node(t, Config{})
		natOn(t, v)
		p, err := packet.Parse(c.header)
		if err != nil {
			t.Fatal(err)
		}
		parts := packet.Split(&p, 3, 1)
		for _, once := range []struct{ name, want string }{{"in reversed order", c.want}, {"in order", "192.168.16.1 192.168.16.1 192.168.16.1"}} {
			slices.Reverse(parts)
			var sources []string
			for _, f := range parts {
				f.Fragment.ID += uint16(len(once.name))
				for _, o := range v.Send("pod-a", f).Out {
					sources = append(sources, o.Packet.Src.String())
				}
			}
			if got := strings.Join(sources, " "); got != once.want || len(v.Sessions()) != 1 {
				t.Errorf("%s, %s: got %s want %s; sessions %v", c.header, once.name, got, once.want, v.Sessions())
			}
		}
	}
}

// TestSecondFirstFragments: NAT44 writes the ports of a session's flow into a second first fragment, even if it translates nothing; without a
// session the fragment passes with its own ports.
func TestSecondFirstFragments(t *testing.T) {
	v := node(t, Config{})
	natOn(t, v)
	second := func(id int) string {
		t.Helper()
		var last string
		for _, ports := range [][2]int{{5000, 53}, {5001, 54}} {
			p, err := packet.Parse(fmt.Sprintf("udp 192.168.16.1:%d -> 10.1.2.2:%d fragment %d offset 0 length 24 more", ports[0], ports[1], id))
			if err != nil {
				t.Fatal(err)
			}
			out := v.Send("pod-a", p).Out
			if len(out) != 1 {
				t.Fatalf("%v left", out)
			}
			last = fmt.Sprintf("%d -> %d", out[0].Packet.SrcPort, out[0].Packet.DstPort)
		}
		return last
	}
	if got := second(1); got != "5001 -> 54" {
		t.Errorf("no session: %s", got)
	}
	p, err := packet.Parse("udp 10.1.2.2:53 -> 192.168.16.1:5000")
	if err != nil {
		t.Fatal(err)
	}
	v.Send("overlay", p)
	if got := second(2); len(v.Sessions()) != 1 || got != "5000 -> 53" {
		t.Errorf("a session for answers: %s, %v", got, v.Sessions())
	}
}

// TestWholeDatagramsEnterAgain: a datagram for VPP itself passes the input features in fragments, and once more when it is whole. VPP then drops
// what has a wrong checksum.
func TestWholeDatagramsEnterAgain(t *testing.T) {
	v := node(t, Config{})
	natOn(t, v)
	p, err := packet.Parse("tcp 198.51.100.7:4000 -> 192.168.16.1:8002 [S]")
	if err != nil {
		t.Fatal(err)
	}
	var last Fate
	for _, f := range packet.Split(&p, 2, 1) {
		last = v.Send("uplink", f)
	}
	way := fmt.Sprint(last.Hops)
	if strings.Count(way, "nat44-ed-out2in-slowpath") != 2 || !strings.Contains(way, "uplink: tcp 198.51.100.7:4000 -> 192.168.16.1:8002 [S] ttl") || !strings.Contains(way, "drop: wrong checksum") {
		t.Error(way)
	}
}

// TestOneReportOfAVector: of fragments that pass together VPP reports the first one.
func TestOneReportOfAVector(t *testing.T) {
	v := node(t, Config{})
	natOn(t, v)
	p, err := packet.Parse("udp 10.1.1.2:5000 -> 8.8.8.8:53 ttl 1")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	parts := packet.Split(&p, 3, 1)
	slices.Reverse(parts)
	for _, f := range append(parts, parts...) {
		for _, o := range v.Send("pod-a", f).Out {
			out = append(out, fmt.Sprint(o.Packet.Inner.Fragment.Offset))
		}
	}
	if got := strings.Join(out, " "); got != "48 48 24 0" { // of the vector, and of each that comes alone
		t.Errorf("reported: %s", got)
	}
}
