package interim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// broadAtom draws a rule about prefixes of any length that are near to each other.
func broadAtom(t *rapid.T) match.Atom {
	v4 := rapid.Bool().Draw(t, "IPv4")
	end := func(what string) netip.Prefix {
		base := netip.MustParseAddr("fd00::a00:0:0:1")
		if v4 {
			base = netip.MustParseAddr("10.0.0.1")
		}
		b := base.AsSlice()
		if i := rapid.IntRange(-1, 8*len(b)-1).Draw(t, what); i >= 0 {
			b[i/8] ^= 128 >> (i % 8)
		}
		a, _ := netip.AddrFromSlice(b)
		return netip.PrefixFrom(a, rapid.IntRange(0, 8*len(b)).Draw(t, "bits")).Masked()
	}
	ports := func() match.Span {
		lo := uint16(rapid.IntRange(0, 3).Draw(t, "port"))
		return rapid.SampledFrom([]match.Span{match.AllPorts, {Lo: lo, Hi: lo + 1}, {Lo: lo, Hi: 65535}}).Draw(t, "ports")
	}
	return match.Atom{Src: end("src"), Dst: end("dst"), SrcPorts: ports(), DstPorts: ports(), Proto: rapid.SampledFrom([]uint8{0, match.TCP, match.UDP}).Draw(t, "proto")}
}

// Boxes meet if, and only if, the rules meet. Rules of two families do not.
func TestBoxes(t *testing.T) {
	every := func(f match.Family) *match.Atom {
		return &match.Atom{Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
	}
	if v4, v6 := boxOf(every(match.V4)), boxOf(every(match.V6)); v4.meets(&v6) {
		t.Error("IPv4 meets IPv6")
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := broadAtom(t), broadAtom(t)
		x, y := boxOf(&a), boxOf(&b)
		_, want := meet(&a, &b)
		if got := x.meets(&y); got != want {
			t.Fatalf("%v and %v: %v, want %v", a, b, got, want)
		}
		wide := boxOf(broader(a))
		if !x.meets(&x) || !x.meets(&wide) {
			t.Fatalf("%v does not meet itself, or a broader rule", a)
		}
	})
}

// broader is a rule that matches more.
func broader(a match.Atom) *match.Atom {
	a.Src, a.Dst = netip.PrefixFrom(a.Src.Addr(), a.Src.Bits()/2).Masked(), netip.PrefixFrom(a.Dst.Addr(), a.Dst.Bits()/2).Masked()
	a.SrcPorts, a.Proto = match.AllPorts, 0
	return &a
}

// Two lists of an interface that permit some packets by different rules: a policy's addresses were those of pods, and are now of other pods and ranges.
func BenchmarkBothTable(b *testing.B) {
	for _, rules := range []int{100, 1000} {
		list := func(seed uint64) (out []flatRule) {
			random := rand.New(rand.NewPCG(seed, 1))
			for range rules {
				src := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(random.IntN(4)), byte(random.IntN(256))}), 32-4*random.IntN(2)).Masked()
				port := uint16(80 + random.IntN(8))
				a := match.Atom{Verb: match.Allow, Src: src, Dst: match.V4.All(), Proto: match.TCP, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: port, Hi: port}}
				out = append(out, flatRule{a, &dataplane.Cause{}, lawless(), false})
			}
			return out
		}
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			old, now := list(1), list(2)
			b.ReportAllocs()
			var n int
			for b.Loop() {
				both := both{old: old, now: now, sctp: true, work: mostTable}
				n = len(both.makeTable("t").Rules)
			}
			b.ReportMetric(float64(n), "rules")
		})
	}
}
