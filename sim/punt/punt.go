// Package punt models which packets VPP gives to a program by a socket, and why it has packets to give. It turns requests into that state and back into text; no packet is sent.
//
// Invariant: the state changes by requests only. It is not safe for concurrent use.
package punt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/ip_types"
	vpppunt "go.fd.io/govpp/binapi/punt"
)

const (
	unspecified = int32(-1) // the return value of VPP 24.06 (vnet/error.h)
	allPorts    = 65535     // VPP's value for any port
)

// reasons are those of a VPP without plugins, by number.
var reasons = []string{"", "ipsec4-spi-o-udp-0", "ipsec4-no-such-tunnel", "ipsec6-no-such-tunnel", "ipsec6-spi-o-udp-0"}

// Reasons returns the reasons with a name; "": all.
func Reasons(name string) (list []vpppunt.PuntReason) {
	for id, n := range reasons {
		if name == "" || n == name {
			list = append(list, vpppunt.PuntReason{ID: uint32(id), Name: n})
		}
	}
	return list
}

// Sockets are the paths of the programs, by what they get.
type Sockets map[vpppunt.Punt]string

// Register is punt_socket_register: it accepts only UDP ports, existing exceptions, and any IP protocol.
func (s Sockets) Register(m *vpppunt.PuntSocketRegister) (retval int32) {
	p, l4 := m.Punt, m.Punt.Punt.GetL4()
	switch {
	case m.HeaderVersion != 1,
		p.Type == vpppunt.PUNT_API_TYPE_L4 && (l4.Protocol != ip_types.IP_API_PROTO_UDP || l4.Port == allPorts),
		p.Type == vpppunt.PUNT_API_TYPE_EXCEPTION && p.Punt.GetException().ID >= uint32(len(reasons)):
		return unspecified
	}
	s[p], _, _ = strings.Cut(m.Pathname, "\x00")
	return 0
}

// Registered returns what programs get, in an order that does not depend on that of the requests.
func (s Sockets) Registered() []vpppunt.Punt {
	return slices.SortedFunc(maps.Keys(s), func(a, b vpppunt.Punt) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), slices.Compare(a.Punt.XXX_UnionData[:], b.Punt.XXX_UnionData[:]))
	})
}

// Text has a line for each.
func (s Sockets) Text() string {
	var b strings.Builder
	for _, p := range s.Registered() {
		what := "reason " + reasons[min(int(p.Punt.GetException().ID), len(reasons)-1)]
		if p.Type != vpppunt.PUNT_API_TYPE_EXCEPTION {
			what = fmt.Sprintf("%+v", p.Punt.GetL4())
		}
		fmt.Fprintf(&b, "punt-socket %s %s\n", what, s[p])
	}
	return b.String()
}
