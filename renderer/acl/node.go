package acl

import (
	"github.com/contiv-agent/contiv-agent/enforce"
)

// trusted are the protocols whose source address is the sender's; 0 is any. nat44 gives packets of protocols it does not
// translate the node's address (24.06, nat44-ed-in2out-slowpath).
func (r *Renderer) trusted(f family) []uint8 {
	if r.view(f) == enforce.PreDNAT {
		return []uint8{protoTCP, protoUDP, f.icmp()}
	}
	return []uint8{0}
}

// view is what the input hook sees of a family.
func (r *Renderer) view(f family) enforce.View {
	if f == v4 {
		return r.node.View4
	}
	return r.node.View6
}
