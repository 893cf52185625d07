package route

import (
	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// routeInfo holds everything known of one network. If several objects claim a network (bad data, or a moment of
// change), the first in the order of the lists counts, so that the result does not depend on the order of arrival.
type routeInfo struct {
	pools  []poolClaim
	blocks []blockClaim
	hosts  []string // nodes that have the address
	refs   []routeRef
}

func (i *routeInfo) unused() bool {
	return len(i.pools)+len(i.blocks)+len(i.hosts)+len(i.refs) == 0
}

type poolClaim struct {
	id              string
	kind            felix.IPPoolType
	nat, crossesNet bool
}

type blockClaim struct {
	block cidr.CIDR
	node  string
}

// refKind is the purpose for which a node uses an address.
type refKind uint8

// The order decides which kind counts when a node uses one address for several purposes.
const (
	refWorkload refKind = iota
	refWireguard
	refIPIP
	refVXLAN
)

// routeRef says that a node uses an address, for a workload or for a tunnel.
type routeRef struct {
	node  string
	kind  refKind
	count int
}
