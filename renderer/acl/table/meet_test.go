package table

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// networks and hosts are prefixes and addresses inside and outside of them, by family.
var (
	networks = [2][]netip.Prefix{
		{netip.MustParsePrefix("10.1.1.1/32"), netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("10.1.1.2/31"), netip.MustParsePrefix("10.1.2.0/23"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/1")},
		{netip.MustParsePrefix("fd00:1::1/128"), netip.MustParsePrefix("fd00:1::/126"), netip.MustParsePrefix("fd00:2::/63"), netip.MustParsePrefix("fd00::/15"), netip.MustParsePrefix("2001:d00::/24")},
	}
	hosts = [2][]netip.Addr{
		{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("10.1.2.1"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("192.168.0.1")},
		{netip.MustParseAddr("fd00:1::1"), netip.MustParseAddr("fd00:1::2"), netip.MustParseAddr("fd00:2::1"), netip.MustParseAddr("2001:db8::8"), netip.MustParseAddr("fd00:f::1")},
	}
)

// packet is the first packet of an association.
type packet struct {
	src, dst     netip.Addr
	sport, dport uint16
}

// Between two filters the associations may begin that both permit, or fewer if those need too many rules.
func TestMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) []Association {
			one := rapid.Custom(func(t *rapid.T) Association {
				f := rapid.SampledFrom(match.Families[:]).Draw(t, "family")
				network := func() netip.Prefix {
					if rapid.Bool().Draw(t, "all") {
						return f.All()
					}
					return rapid.SampledFrom(networks[f]).Draw(t, "net")
				}
				ports := func() match.Span {
					lo := rapid.Uint16().Draw(t, "lo")
					return match.Span{Lo: lo, Hi: rapid.Uint16Range(lo, 65535).Draw(t, "hi")}
				}
				a := Association{Permit: rapid.Bool().Draw(t, "permit"), Src: network(), Dst: network(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
				if rapid.Bool().Draw(t, "ports") {
					a.SrcPorts, a.DstPorts = ports(), ports()
				}
				return a
			})
			return rapid.SliceOfN(one, 1, 8).Draw(t, label)
		}
		a, b := draw("a"), draw("b")
		both := meet(a, b)
		for _, f := range match.Families {
			for range 50 {
				addr := rapid.SampledFrom(hosts[f])
				p := packet{addr.Draw(t, "src"), addr.Draw(t, "dst"), rapid.Uint16().Draw(t, "sport"), rapid.Uint16().Draw(t, "dport")}
				if want := literally(a, p) && literally(b, p); literally(both, p) != want {
					t.Fatalf("%v: want %v\n%v\n%v\n%v", p, want, a, b, both)
				}
			}
		}
	})
}

// literally returns the verdict of rules for one association.
func literally(rules []Association, p packet) bool {
	for _, a := range rules {
		if a.Src.Contains(p.src) && a.Dst.Contains(p.dst) && a.SrcPorts.Lo <= p.sport && p.sport <= a.SrcPorts.Hi && a.DstPorts.Lo <= p.dport && p.dport <= a.DstPorts.Hi {
			return a.Permit
		}
	}
	return false
}
