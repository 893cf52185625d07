package acl

import (
	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// sessionsEnd are the requests that end the sessions of an interface without lists, before it gets its lists. VPP keeps the sessions of a deleted
// interface, and gives its index to a new one. It ends them when an interface has ACLs in one direction alone and gets its Ethertypes (those of a
// bridge): it then disables and enables the node of that direction. So no direction is opened again, and the Ethertypes stay as they are.
type sessionsEnd struct {
	same *vppacl.ACLInterfaceSetEtypeWhitelist
}

// askEthertypes is the request that asks for the Ethertypes.
func (e *sessionsEnd) askEthertypes(idx interface_types.InterfaceIndex) descriptor.Op {
	return descriptor.Op{
		Asks: true, Call: vpp.Call{Dump: true, Msg: &vppacl.ACLInterfaceEtypeWhitelistDump{SwIfIndex: idx}},
		Then: func(r vpp.Reply) []descriptor.Op {
			e.same = &vppacl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: idx}
			for _, m := range r.Details {
				if m, ok := m.(*vppacl.ACLInterfaceEtypeWhitelistDetails); ok && m.SwIfIndex == idx {
					e.same.Count, e.same.NInput, e.same.Whitelist = m.Count, m.NInput, m.Whitelist
				}
			}
			return nil
		},
	}
}

// requests returns those to send before those for the lists that are wanted; none if the Ethertypes are unknown.
func (e *sessionsEnd) requests(w *descriptor.World, want attached) []descriptor.Op {
	if e.same == nil || len(want.in)+len(want.out) == 0 {
		return nil
	}
	half, other := attached{in: want.in}, attached{out: want.out}
	if len(half.in) == 0 || len(other.out) > 0 && costOfSwitch(w, attached{}, other) < costOfSwitch(w, attached{}, half) {
		half = other
	}
	first, touch := descriptor.Op{Call: half.set(e.same.SwIfIndex), Cost: costOfSwitch(w, attached{}, half)}, descriptor.Op{Call: descriptor.Write(e.same)}
	first.Call.Joined, touch.Call.Joined = true, true // both directions close together
	return []descriptor.Op{first, touch}
}
