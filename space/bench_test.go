package space

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// cpu reports the time of the processors for each iteration: other programs of the machine do not change it much.
func cpu(b *testing.B, run func()) {
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64((used()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// manyRules is a list as renderers make of an address set: every second rule has a port, and the last rule denies.
func manyRules(n int) []Rule {
	rules := make([]Rule, 0, n)
	for i := range n - 1 {
		b := All4()
		b.Src = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 14), byte(i >> 6), byte(i << 2)}), 32)
		b.Protocols = One(TCP)
		if i%2 == 0 {
			b.DstPorts = One(uint16(1000 + i%100))
		}
		rules = append(rules, Rule{b, uint8(1 + i%3)})
	}
	return append(rules, Rule{All4(), 3})
}

// podSets is what each of 110 pods has in each direction: the shared list behind a separate rule.
func podSets(s *Space, list []Rule) (sets []Set) {
	shared := s.List(list)
	for i := range 110 {
		for _, in := range []bool{true, false} {
			own := All4()
			address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, 0, byte(i)}), 32)
			if own.Src = address; in {
				own.Src, own.Dst = own.Dst, address
			}
			d := s.Override(s.List([]Rule{{own, 2}}), shared)
			sets = append(sets, s.Intersect(s.Where(d, 1, 2), s.Box(own)))
		}
	}
	return sets
}

// BenchmarkNode calculates a node anew: 110 pods, two directions, 10,000 shared rules.
func BenchmarkNode(b *testing.B) {
	rules := manyRules(10_000)
	b.ReportAllocs()
	cpu(b, func() {
		s := New()
		if sets := podSets(s, rules); len(sets) != 220 || sets[0].Empty() {
			b.Fatal("no sets")
		}
	})
}

// BenchmarkOneList is a list of 100,000 rules.
func BenchmarkOneList(b *testing.B) {
	rules := manyRules(100_000)
	b.ReportAllocs()
	cpu(b, func() {
		s := New()
		if s.List(rules) == (Decisions{}) {
			b.Fatal("no decisions")
		}
		nodes, edges := s.Size()
		b.ReportMetric(float64(nodes), "nodes")
		b.ReportMetric(float64(edges), "edges")
	})
}

// BenchmarkOneChange adds or removes one rule of a list of 10,000 that is known.
func BenchmarkOneChange(b *testing.B) {
	for _, at := range []int{0, 5_000, 9_998} {
		b.Run(fmt.Sprint(at), func(b *testing.B) {
			rules := manyRules(10_000)
			s := New()
			before := s.List(rules)
			n := 0
			cpu(b, func() {
				n++
				changed := append([]Rule{}, rules[:at]...)
				other := All4()
				other.Src = netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
				changed = append(append(changed, Rule{other, 1}), rules[at:]...)
				if s.List(changed) == before {
					b.Fatal("no change")
				}
			})
		})
	}
}
