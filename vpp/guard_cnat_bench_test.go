package vpp

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
)

// BenchmarkGuardTranslations: the cost of one check does not depend on the number of translations.
func BenchmarkGuardTranslations(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(map[int]string{100: "100", 10000: "10000"}[n], func(b *testing.B) {
			g := NewGuard()
			at := func(i int) api.Message {
				return translationOf(func(t *cnat.CnatTranslation) {
					t.Vip.Addr.Un.XXX_UnionData[14], t.Vip.Addr.Un.XXX_UnionData[15] = byte(i>>8), byte(i)
				})
			}
			for i := range n {
				m := at(i)
				if err := g.Check(m); err != nil {
					b.Fatal(err)
				}
				g.Observe(m, Reply{Msg: &cnat.CnatTranslationUpdateReply{ID: uint32(i)}})
			}
			m := at(7)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Check(m); err != nil {
					b.Fatal(err)
				}
				g.Observe(m, Reply{Msg: &cnat.CnatTranslationUpdateReply{ID: 7}})
			}
		})
	}
}
