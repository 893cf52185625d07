package sim

import (
	"cmp"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/contiv-agent/contiv-agent/sim/frame"
)

// vxlanParams are the fields that the dump of a tunnel adds to those of the interface.
type vxlanParams struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
	vni, vrf         uint32
	multicast        uint32 // sw_if_index
}

const vxlanPort = 4789

// tunnelKey identifies a tunnel uniquely.
func (p vxlanParams) tunnelKey() vxlanParams {
	if p.dst.IsMulticast() || p.dst.Is6() {
		p.src = netip.Addr{}
	}
	p.dstPort, p.multicast = 0, 0
	return p
}

func (p vxlanParams) tunnelText() string {
	return fmt.Sprintf(" vxlan %s %s vni %d vrf %d", p.src, p.dst, p.vni, p.vrf)
}

// vxlanMessages: tunnels. A packet sent into a tunnel leaves by it unchanged.
func vxlanMessages(t *apiTable) {
	onWrite(t, func(q *call, m *vxlan.VxlanAddDelTunnelV3) *vxlan.VxlanAddDelTunnelV3Reply {
		i, rv := q.vxlanAddDel(m)
		return &vxlan.VxlanAddDelTunnelV3Reply{Retval: rv, SwIfIndex: i}
	})
	onDump(t, func(q *call, m *vxlan.VxlanTunnelV2Dump, send func(*vxlan.VxlanTunnelV2Details)) {
		for _, f := range q.ifs.all() {
			if f.kind == kindVxlan && (uint32(m.SwIfIndex) == noIndex || uint32(m.SwIfIndex) == f.index) {
				p := f.vxlan
				send(&vxlan.VxlanTunnelV2Details{
					SwIfIndex: ifIndex(f), Instance: f.id, SrcAddress: toAddress(p.src), DstAddress: toAddress(p.dst), SrcPort: p.srcPort, DstPort: p.dstPort,
					McastSwIfIndex: interface_types.InterfaceIndex(p.multicast), EncapVrfID: p.vrf, DecapNextIndex: 1, Vni: p.vni,
				})
			}
		}
	})
}

func (v *VPP) vxlanAddDel(m *vxlan.VxlanAddDelTunnelV3) (interface_types.InterfaceIndex, int32) {
	p := vxlanParams{
		src: fromAddress(m.SrcAddress), dst: fromAddress(m.DstAddress), srcPort: cmp.Or(m.SrcPort, vxlanPort), dstPort: cmp.Or(m.DstPort, vxlanPort),
		vni: m.Vni & (1<<24 - 1), vrf: m.EncapVrfID, multicast: uint32(m.McastSwIfIndex),
	}
	refused := interface_types.InterfaceIndex(noIndex)
	switch {
	case v.fib[family(p.src)].findTable(p.vrf) == nil:
		return refused, rvNoSuchFIB
	case p.src.Is4() != p.dst.Is4():
		return refused, rvInvalidValue
	case p.src == p.dst:
		return refused, rvSameSrcDst
	case p.dst.IsMulticast() && v.ifs.get(p.multicast) == nil:
		return refused, rvInvalidSwIfIndex
	}
	var have *iface
	for _, f := range v.ifs.all() {
		if f.kind == kindVxlan && f.vxlan.tunnelKey() == p.tunnelKey() {
			have = f
		}
	}
	switch {
	case m.IsAdd && have != nil:
		return refused, rvTunnelExists
	case !m.IsAdd && have == nil:
		return refused, rvNoSuchEntry
	case !m.IsAdd:
		v.destroy(have)
		return ifIndex(have), 0
	}
	id := m.Instance
	if id == noIndex {
		id = v.freeID(kindVxlan)
	}
	name := fmt.Sprintf("vxlan_tunnel%d", id)
	if v.ifs.byName[name] != nil {
		return refused, rvInstanceInUse
	}
	f := v.create(&iface{name: name, kind: kindVxlan, devType: "VXLAN", id: id, mac: frame.DerivedMAC(name), vxlan: p})
	v.setUp(f, true)
	return ifIndex(f), 0
}
