package builtin

import (
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/translation"
)

// Ended returns the frontends and endpoints of the new connections that VPP translates before a change of a value and not after it, in no particular
// order; either value may be nil. sent returns the value that VPP was sent for a key. The zero Addr is an address that is not known: that of an interface.
// Nil: no connection ends, or the values are neither translations nor source ranges.
func Ended(was, now proto.Message, sent func(key string) proto.Message) (out []netip.Addr) {
	add := func(l translation.Leg) {
		for _, text := range [2]string{l.Frontend, l.Endpoint} {
			a, _ := netip.ParseAddr(text) // the zero Addr: not known
			out = append(out, a)
		}
	}
	if nat44.Interim(now, was) != nil { // source ranges that close
		for _, key := range nat44.Restricted(was) {
			for l := range translation.Legs(sent(key)) {
				add(l)
			}
		}
		return out
	}
	for _, l := range translation.Without(was, now) {
		add(l)
	}
	return out
}
