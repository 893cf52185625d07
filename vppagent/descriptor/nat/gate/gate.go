// Package gate turns a change of a DNat44 into the kinds of values that must precede it.
//
// Invariant: a change that leads packets to an endpoint by an address where nothing led to it before, or that hides other clients, follows the access
// lists. A change that only removes endpoints follows nothing: they may no longer exist.
package gate

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// Kind is the name of the kind whose changes this is about.
const Kind = "dnat44"

// Behind returns the names of the kinds whose values must not be missing when VPP gets the state want, if it has have; nil: it has nothing. message returns
// the message of a state.
func Behind(message func(state any) proto.Message, have, want any) []string {
	var before *nat.DNat44
	if have != nil {
		before, _ = message(have).(*nat.DNat44)
	}
	after, _ := message(want).(*nat.DNat44)
	if !leadsFurther(before, after) {
		return nil
	}
	return []string{"acl", "interface-acls"}
}

// address is where clients dial, and how VPP translates there.
type address struct {
	ip, iface, pool string
	port            uint32
	proto           nat.DNat44_Protocol
	hides           nat.DNat44_StaticMapping_TwiceNatMode
}

// endpoint is an endpoint behind such an address.
type endpoint struct {
	address
	backend   string
	port, vrf uint32
}

// leadsFurther reports whether a DNat44 has an endpoint for new connections that another one has not.
func leadsFurther(before, after *nat.DNat44) bool {
	had := map[endpoint]bool{}
	for e := range endpoints(before) {
		had[e] = true
	}
	for e := range endpoints(after) {
		if !had[e] {
			return true
		}
	}
	return false
}

// endpoints yields the endpoints that get new connections.
func endpoints(d *nat.DNat44) func(yield func(endpoint) bool) {
	return func(yield func(endpoint) bool) {
		for _, m := range d.GetStMappings() {
			a := address{m.GetExternalIp(), m.GetExternalInterface(), m.GetTwiceNatPoolIp(), m.GetExternalPort(), m.GetProtocol(), m.GetTwiceNat()}
			for _, l := range m.GetLocalIps() {
				drains := l.GetProbability() == 0 && len(m.GetLocalIps()) > 1
				if !drains && !yield(endpoint{a, l.GetLocalIp(), l.GetLocalPort(), l.GetVrfId()}) {
					return
				}
			}
		}
	}
}
