package sim

import (
	"fmt"

	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
)

// subMessages: sub-interfaces of one VLAN. The sim's packets have no tags: a packet that arrives on a sub-interface counts as
// tagged.
func subMessages(t *apiTable) {
	onWrite(t, func(q *call, m *interfaces_.CreateVlanSubif) *interfaces_.CreateVlanSubifReply {
		i, rv := q.createSub(m)
		return &interfaces_.CreateVlanSubifReply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *interfaces_.DeleteSubif) *interfaces_.DeleteSubifReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			if f.kind != kindSub {
				return rvInvalidSubSwIfIndex
			}
			return q.deleteKind(m.SwIfIndex, kindSub)
		})
		return &interfaces_.DeleteSubifReply{Retval: rv}
	})
}

func (v *VPP) createSub(m *interfaces_.CreateVlanSubif) (interface_types.InterfaceIndex, int32) {
	refused := interface_types.InterfaceIndex(noIndex)
	parent := v.ifs.get(uint32(m.SwIfIndex))
	if parent == nil {
		return refused, rvInvalidSwIfIndex
	}
	if parent.kind == kindSub {
		parent = v.ifs.get(parent.parent)
	}
	name := fmt.Sprintf("%s.%d", parent.name, m.VlanID)
	switch {
	case m.VlanID == 0 || m.VlanID > 4095:
		return refused, rvInvalidVLAN
	case v.ifs.byName[name] != nil:
		return refused, rvVLANAlreadyExists
	}
	return ifIndex(v.create(&iface{name: name, kind: kindSub, devType: parent.devType, id: m.VlanID, parent: parent.index})), 0
}

// destroySubs removes sub-interfaces with their parent.
func (v *VPP) destroySubs(f *iface) {
	for _, s := range v.ifs.all() {
		if s.kind == kindSub && s.parent == f.index {
			v.destroy(s)
		}
	}
}

// subDetails adds the fields that a dump shows of a sub-interface.
func (f *iface) subDetails(d *interfaces_.SwInterfaceDetails) {
	if f.kind != kindSub {
		return
	}
	d.Type, d.SupSwIfIndex, d.SubID, d.SubOuterVlanID = interface_types.IF_API_TYPE_SUB, f.parent, f.id, uint16(f.id)
	d.SubNumberOfTags, d.SubIfFlags = 1, interface_types.SUB_IF_API_FLAG_ONE_TAG|interface_types.SUB_IF_API_FLAG_EXACT_MATCH
}
