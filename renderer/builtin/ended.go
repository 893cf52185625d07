package builtin

import (
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// leg is what a translation does with a new connection: where clients dial, the endpoint, and the source that the endpoint sees.
type leg struct {
	frontend, iface, endpoint, source string
	protocol, hides                   int32
	port, target, vrf                 uint32
}

// Ended returns the frontends and endpoints of the new connections that VPP translates before a change of a value and not after it, in no particular
// order; either value may be nil. sent returns the value that VPP was sent for a key. The zero Addr is an address that is not known: that of an interface. Nil: no connection ends, or the values are neither translations nor
// source ranges.
func Ended(was, now proto.Message, sent func(key string) proto.Message) []netip.Addr {
	if was == nil {
		return nil
	}
	var out []netip.Addr
	add := func(l leg) {
		for _, text := range [2]string{l.frontend, l.endpoint} {
			a, _ := netip.ParseAddr(text) // the zero Addr: not known
			out = append(out, a)
		}
	}
	if nat44.Interim(now, was) != nil { // source ranges that close
		for _, key := range nat44.Restricted(was) {
			legs(sent(key), add)
		}
		return out
	}
	after := map[leg]bool{}
	legs(now, func(l leg) { after[l] = true })
	legs(was, func(l leg) {
		if !after[l] {
			add(l)
		}
	})
	return out
}

// legs calls f for each leg of a translation. An endpoint of nat44 with probability 0 beside others gets no new connections.
func legs(m proto.Message, f func(leg)) {
	switch m := m.(type) {
	case *nat.DNat44:
		for _, s := range m.GetStMappings() {
			l := leg{frontend: s.GetExternalIp(), iface: s.GetExternalInterface(), source: s.GetTwiceNatPoolIp(), protocol: int32(s.GetProtocol()), hides: int32(s.GetTwiceNat()), port: s.GetExternalPort()}
			for _, local := range s.GetLocalIps() {
				if l.endpoint, l.target, l.vrf = local.GetLocalIp(), local.GetLocalPort(), local.GetVrfId(); local.GetProbability() > 0 || len(s.GetLocalIps()) == 1 {
					f(l)
				}
			}
		}
	case *cnat.Translation:
		l := leg{frontend: m.GetVip().GetAddress(), iface: m.GetVip().GetInterface(), protocol: int32(m.GetProtocol()), port: m.GetVip().GetPort()}
		for _, p := range m.GetPaths() {
			l.endpoint, l.target, l.source = p.GetDestination().GetAddress(), p.GetDestination().GetPort(), p.GetSource().GetAddress()
			f(l)
		}
	}
}
