package acl

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"pgregory.net/rapid"
)

func addrOf(t *rapid.T, v6 bool, name string) netip.Addr {
	if v6 {
		return netip.MustParseAddr(rapid.SampledFrom([]string{"fd00::1", "fd00::2", "fd00:0:0:1::1", "fd00:0:0:1:8000::1", "2001:db8::1", "fd80::1"}).Draw(t, name))
	}
	return netip.MustParseAddr(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "10.128.0.1", "192.0.2.1"}).Draw(t, name))
}

func prefixOf(t *rapid.T, v6 bool, name string) netip.Prefix {
	a := addrOf(t, v6, name)
	bits := rapid.SampledFrom([]int{0, 0, 1, 8, 9, 24, 30, 31, 32}).Draw(t, name+" bits")
	if v6 {
		bits = rapid.SampledFrom([]int{0, 1, 8, 9, 32, 63, 64, 65, 108, 121, 127, 128}).Draw(t, name+" bits")
	}
	p, err := a.Prefix(bits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rangeOf(t *rapid.T, name string) Range {
	ports := []uint16{0, 1, 80, 81, 65535}
	a, b := rapid.SampledFrom(ports).Draw(t, name), rapid.SampledFrom(ports).Draw(t, name+" last")
	if rapid.Bool().Draw(t, name+" any") {
		return allPorts
	}
	return Range{min(a, b), max(a, b)}
}

func ruleOf(t *rapid.T) Rule {
	v6 := rapid.Bool().Draw(t, "ipv6")
	r := Rule{
		Action: Action(rapid.IntRange(0, 2).Draw(t, "action")), Src: prefixOf(t, v6, "src"), Dst: prefixOf(t, v6, "dst"),
		Proto: rapid.SampledFrom([]uint8{0, 1, 6, 6, 17, 58, 132}).Draw(t, "proto"), SrcPorts: rangeOf(t, "sport"), DstPorts: rangeOf(t, "dport"),
	}
	if rapid.Bool().Draw(t, "flags") {
		r.TCPMask, r.TCPValue = packet.SYN|packet.ACK, packet.SYN
	}
	return r
}

// TestIndexIsTheList: the index finds the same rule as a comparison of one rule after the other, whatever VPP's bugs.
func TestIndexIsTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(ruleOf), 0, 40).Draw(t, "rules")
		bug := rapid.SampledFrom([]prefixBug{noBug, within, bare}).Draw(t, "bug")
		x := newIndex(rules, bug == bare)
		for range 20 {
			v6 := rapid.Bool().Draw(t, "packet ipv6")
			q := query{bug: bug, tcpFlags: rapid.SampledFrom([]uint8{packet.SYN, packet.ACK}).Draw(t, "tcp"), key: key{
				src: addrOf(t, v6, "from"), dst: addrOf(t, v6, "to"), proto: rapid.SampledFrom([]uint8{1, 6, 17, 58, 132}).Draw(t, "protocol"),
				sport: rapid.SampledFrom([]uint16{0, 80, 90}).Draw(t, "from port"), dport: rapid.SampledFrom([]uint16{0, 80, 81}).Draw(t, "to port"),
			}}
			if got, want := x.first(rules, &q), linear(rules, &q); got != want {
				t.Fatalf("%+v: the index finds rule %d, the list %d", q, got, want)
			}
		}
	})
}

// TestPrefixBug holds the observed verdicts of VPP 24.06.
func TestPrefixBug(t *testing.T) {
	for _, c := range []struct {
		prefix, addr        string
		right, hash, linear bool
	}{
		{"fd00:1::/64", "fd00:1::9", true, true, true},
		{"fd00:1::/64", "fd00:2::9", false, false, false},
		{"fd00::/12", "fd00::1", true, true, true},
		{"fd00::/12", "fd10::1", false, false, true},                               // bits 8 to 11 are not compared
		{"fd00::/12", "fd00:8000::1", true, false, false},                          // bits 16 to 19 are
		{"fd00::1:0:0/108", "fd00::1:0:0", true, true, true},                       //
		{"fd00::1:0:0/108", "fd00::1:0:ff00", true, false, false},                  //
		{"fd00::/127", "fd00::", true, false, false},                               // the byte behind the address is none of zero
		{"2001:db8::/33", "2001:db8:7fff::1", true, false, false},                  //
		{"2001:db8:8000::/33", "2001:db8:8000::1", true, true, true},               // compares bit 40 with 0, which it is
		{"2001:db8:8000::/33", "2001:db8::1", false, false, true},                  //
		{"2001:db8:8000::/33", "2001:db8:0:8000::1", false, false, true},           //
		{"::/0", "2001:db8::1", true, true, true},                                  //
		{"2001:db8::7f00:0:0:0/66", "2001:db8::7f00:0:0:0", true, true, true},      //
		{"2001:db8:0:0:4000::/66", "2001:db8:0:0:7fff::1", true, false, false},     //
		{"2001:db8:0:0:4000::/66", "2001:db8:0:0:4012:3456::", true, true, true},   //
		{"2001:db8:0:0:4000::/66", "2001:db8:0:0:8012:3456::", false, false, true}, //
	} {
		p, err := netip.ParsePrefix(c.prefix)
		if err != nil {
			t.Fatal(err)
		}
		p = p.Masked()
		got := [3]bool{}
		for i, bug := range []prefixBug{noBug, within, bare} {
			q := query{bug: bug, key: key{src: netip.MustParseAddr("2001::1"), dst: netip.MustParseAddr(c.addr)}}
			got[i] = q.matches(&Rule{Src: netip.MustParsePrefix("::/0"), Dst: p, SrcPorts: allPorts, DstPorts: allPorts})
		}
		if want := [3]bool{c.right, c.hash, c.linear}; got != want {
			t.Errorf("%s holds %s: got %v want %v (right, hash, linear)", p, c.addr, got, want)
		}
	}
}

// BenchmarkCheck checks one packet against 10,000 rules, each for another pair of hosts; the last one matches.
func BenchmarkCheck(b *testing.B) {
	e := New(Config{})
	var rules []Rule
	for i := range 10000 {
		rules = append(rules, Rule{
			Action: Permit, Src: host(fmt.Sprintf("10.1.%d.%d", i/256, i%256)), Dst: host("10.9.0.1"), Proto: uint8(model.TCP),
			SrcPorts: allPorts, DstPorts: Range{80, 80},
		})
	}
	i, _ := e.AddReplace(None, "", rules)
	e.SetList(1, 1, []uint32{i})
	p := packet.NewTCP(netip.MustParseAddrPort("10.1.39.15:4000"), netip.MustParseAddrPort("10.9.0.1:80"))
	b.ReportAllocs()
	for b.Loop() {
		if v := e.Check(&p, 1, true); v.Rule != 9999 {
			b.Fatal(v)
		}
	}
}

func host(a string) netip.Prefix {
	addr := netip.MustParseAddr(a)
	return netip.PrefixFrom(addr, addr.BitLen())
}
