package realvpp

import (
	"math/big"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/ip_types"

	simcnat "github.com/contiv-agent/contiv-agent/sim/cnat"
)

// TestVPPCNATMaglev holds Maglev's tables against those the real VPP shows, place by place.
func TestVPPCNATMaglev(t *testing.T) {
	l, err := openLab(realVPP(t, "reads cnat's table of backends by VPP's command line"))
	defer l.close()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 60 {
		vip, none := "10.96.0.10", cnatEnd("", 0)
		random := func() netip.Addr {
			return netip.AddrFrom4([4]byte{10, byte(rng.IntN(256)), byte(rng.IntN(256)), byte(1 + rng.IntN(254))})
		}
		if n%2 > 0 {
			vip, none = "fd00:96::10", cnatEnd("::", 0)
			random = func() netip.Addr {
				return netip.AddrFrom16([16]byte{0xfd, 0, 0, byte(rng.IntN(256)), 15: byte(1 + rng.IntN(255))})
			}
		}
		m := &cnat.CnatTranslationUpdate{Translation: cnat.CnatTranslation{
			Vip: cnatEnd(vip, 80), IPProto: ip_types.IP_API_PROTO_TCP, IsRealIP: 1, LbType: cnat.CNAT_LB_TYPE_MAGLEV,
		}}
		var backends []netip.AddrPort
		for range 1 + rng.IntN(30) {
			b := netip.AddrPortFrom(random(), uint16(1+rng.IntN(65535)))
			backends = append(backends, b)
			m.Translation.Paths = append(m.Translation.Paths, cnat.CnatEndpointTuple{DstEp: cnatEnd(b.Addr().String(), b.Port()), SrcEp: none})
		}
		if rng.IntN(3) == 0 { // the same one twice, as for weights
			backends = append(backends, backends[0])
			m.Translation.Paths = append(m.Translation.Paths, m.Translation.Paths[0])
		}
		m.Translation.NPaths = uint32(len(backends))
		replies, err := l.do(m)
		if err != nil {
			t.Fatal(err)
		}
		want := simcnat.MaglevTable(backends)
		for b, places := range shownMaglev(t, l.cli("show cnat translation")) {
			for place, who := range want {
				if mine := places.Bit(place) == 1; mine != (who == b) {
					t.Fatalf("set %d of %d backends: place %d is backend %d's in the sim; VPP gives it to %d: %v", n, len(backends), place, who, b, mine)
				}
			}
		}
		if _, err := l.do(&cnat.CnatTranslationDel{ID: replies[0].Msg.(*cnat.CnatTranslationUpdateReply).ID}); err != nil {
			t.Fatal(err)
		}
	}
}

// shownMaglev are the places of each backend of the only translation.
func shownMaglev(t *testing.T, text string) []*big.Int {
	t.Helper()
	var out []*big.Int
	for line := range strings.Lines(text) {
		if _, digits, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(strings.TrimSpace(line), "backend#") {
			places, ok := new(big.Int).SetString(strings.TrimSpace(digits), 16)
			if !ok {
				t.Fatalf("not a bitmap: %q", line)
			}
			out = append(out, places)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no table in %q", text)
	}
	return out
}
