package realvpp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// TestVPPCNATAlike: two VIPs with one backend, dialled from one port. The replies look the same; VPP takes both for the first
// flow's.
func TestVPPCNATAlike(t *testing.T) {
	w := startBare(t, theVPP(t), dualStack())
	needOlderCNAT(t, w)
	w.strict = true
	c := &cnatCase{aclCase: newACLCase(w, 1), conns: openBare(t, w)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, c.story())
		}
	}
	check(c.enable(cnatFeature{door(podA), "ip4-unicast", "cnat-input-ip4"}, true))
	check(c.enable(cnatFeature{door(podA), "ip4-output", "cnat-output-ip4"}, true))
	for _, vip := range []string{"10.96.0.10", "10.96.0.11"} {
		check(c.each(func(index) api.Message {
			return &cnat.CnatTranslationUpdate{Translation: cnat.CnatTranslation{
				Vip: cnatEnd(vip, 80), IPProto: ip_types.IP_API_PROTO_TCP, IsRealIP: 1, NPaths: 1,
				Paths: []cnat.CnatEndpointTuple{{DstEp: cnatEnd("10.1.1.3", 8080), SrcEp: cnatEnd("", 0)}},
			}}
		}))
	}
	for _, vip := range []string{"10.96.0.10", "10.96.0.11", "10.96.0.10"} {
		first := same(packet.NewTCP(netip.AddrPortFrom(podA.IPs[0], 4000), netip.AddrPortFrom(netip.MustParseAddr(vip), 80)))
		out, err := w.send(door(podA), first)
		check(err)
		back, err := w.send(out[0].at, out[0].reply())
		check(err)
		if got := back[0].real.Src.String(); got != "10.96.0.10" {
			t.Errorf("the reply to %s comes from %s", vip, got)
		}
	}
	check(c.compare())
}

// TestVPPCNATAge holds what becomes of idle flows, and of their ports, against the real VPP: a port that a flow had is hardly ever
// given out again.
func TestVPPCNATAge(t *testing.T) {
	const flows = 300
	w := startBare(t, theVPP(t), dualStack())
	needOlderCNAT(t, w)
	w.strict = true
	c := &cnatCase{aclCase: newACLCase(w, 1), conns: openBare(t, w)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, c.story())
		}
	}
	check(c.each(func(index) api.Message {
		return &cnat.CnatSetSnatAddresses{SnatIP4: [4]byte{192, 168, 16, 1}, SwIfIndex: ^interface_types.InterfaceIndex(0)}
	}))
	check(c.enable(cnatFeature{"uplink", "ip4-output", "cnat-output-ip4"}, true))
	check(c.enable(cnatFeature{"uplink", "ip4-unicast", "cnat-input-ip4"}, true))
	to := netip.MustParseAddrPort("198.51.100.9:53")
	open := func(n int) uint16 {
		t.Helper()
		out, err := w.send(door(podA), same(packet.NewUDP(netip.AddrPortFrom(podA.IPs[0], uint16(20000+n)), to)))
		check(err)
		if len(out) != 1 {
			t.Fatalf("flow %d: %d packets left", n, len(out))
		}
		return out[0].real.SrcPort
	}
	for n := range flows {
		if got := open(n); got != uint16(0xC000+n) {
			t.Fatalf("flow %d has port %d", n, got)
		}
	}
	check(c.compare())
	time.Sleep(20 * time.Second)
	if got := open(7); got != 0xC007 {
		t.Errorf("after 20 seconds the flow has port %d", got)
	}
	time.Sleep(15 * time.Second)
	w.tick()
	check(c.compare()) // all but that one are gone
	details, err := c.conns[1].dump(&cnat.CnatSessionDump{})
	check(err)
	if len(details) != 2 {
		t.Errorf("%d sessions are left, want both of one flow", len(details))
	}
	ports := map[string]int{}
	for n := range 3 {
		ports[fmt.Sprint(open(flows+n) < 0xC000+flows)]++
	}
	if ports["true"] != 1 { // only 0xC0C0 reads the same from both ends
		t.Errorf("of three new flows %d have a port that was used", ports["true"])
	}
	check(c.compare())
}
