package realvpp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// TestVPPCNATAge holds what becomes of idle flows, and of their ports, against the real VPP: a port that a flow had is hardly ever
// given out again.
func TestVPPCNATAge(t *testing.T) {
	const flows = 300
	w := startBare(t, theVPP(t), dualStack())
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
