// Package translation turns values that translate connections to Services into their legs.
//
// Invariant: an endpoint that gets no new connections has no leg.
package translation

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// Leg is what a translation does with a new connection. Addresses are texts, empty if an interface stands for them.
type Leg struct {
	Frontend, Interface string // where clients dial
	Endpoint            string
	Source              string // the address, or the pool of addresses, that clients are hidden behind; empty: as the translation's mode says
	Protocol, Hides     int32  // transport, mode of twice-NAT: numbers of the value's kind
	Port, Target, VRF   uint32 // that clients dial; of the endpoint; of the endpoint's table
}

// Legs yields the legs of a value; none if it does not translate. An endpoint of nat44 with probability 0 beside others gets no new connections.
func Legs(m proto.Message) iter.Seq[Leg] {
	return func(yield func(Leg) bool) {
		switch m := m.(type) {
		case *nat.DNat44:
			for _, s := range m.GetStMappings() {
				if !mapped(s, yield) {
					return
				}
			}
		case *cnat.Translation:
			l := Leg{Frontend: m.GetVip().GetAddress(), Interface: m.GetVip().GetInterface(), Protocol: int32(m.GetProtocol()), Port: m.GetVip().GetPort()}
			for _, p := range m.GetPaths() {
				l.Endpoint, l.Target, l.Source = p.GetDestination().GetAddress(), p.GetDestination().GetPort(), p.GetSource().GetAddress()
				if !yield(l) {
					return
				}
			}
		}
	}
}

func mapped(s *nat.DNat44_StaticMapping, yield func(Leg) bool) bool {
	l := Leg{
		Frontend: s.GetExternalIp(), Interface: s.GetExternalInterface(), Source: s.GetTwiceNatPoolIp(),
		Protocol: int32(s.GetProtocol()), Hides: int32(s.GetTwiceNat()), Port: s.GetExternalPort(),
	}
	for _, local := range s.GetLocalIps() {
		l.Endpoint, l.Target, l.VRF = local.GetLocalIp(), local.GetLocalPort(), local.GetVrfId()
		if drains := local.GetProbability() == 0 && len(s.GetLocalIps()) > 1; !drains && !yield(l) {
			return false
		}
	}
	return true
}

// Without returns the legs of a value that another one lacks. Either may be nil.
func Without(m, other proto.Message) (out []Leg) {
	has := map[Leg]bool{}
	for l := range Legs(other) {
		has[l] = true
	}
	for l := range Legs(m) {
		if !has[l] {
			out = append(out, l)
		}
	}
	return out
}
