package descriptor

import (
	"cmp"
	"net/netip"
	"strconv"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
)

// IANA numbers of the protocols that VPP translates and filters by port.
const (
	ProtoICMP = 1
	ProtoTCP  = 6
	ProtoUDP  = 17
)

// ProtoName is "tcp", or "proto-<number>".
func ProtoName(p uint8) string {
	switch p {
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	case ProtoICMP:
		return "icmp"
	}
	return "proto-" + strconv.Itoa(int(p))
}

// ComparePrefixes orders by address, then by length.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// VRFKey is the key of a VRF other than 0.
func VRFKey(id uint32, v6 bool) string {
	if v6 {
		return kv.VrfTableKey(id, l3.VrfTable_IPV6)
	}
	return kv.VrfTableKey(id, l3.VrfTable_IPV4)
}
