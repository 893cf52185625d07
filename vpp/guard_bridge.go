package vpp

import (
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/vxlan"
)

// maxBridge is L2_BD_ID_MAX, maxVNI the highest 24-bit number, maxIndex more interfaces than any VPP has.
const (
	maxBridge = 1<<24 - 1
	maxVNI    = 1<<24 - 1
	maxIndex  = 1<<20 - 1
)

func bridgeRules() []Rule {
	return []Rule{
		stateless("bridge-tag", "l2_bd.c bd_set_bd_tag (formats a field of 64 bytes up to its NUL), VPP 24.06",
			"the tag has no terminator: the bytes behind it in memory become part of it, and the owner of the bridge domain is lost",
			func(m *l2.BridgeDomainAddDelV2) string { return longTag(m.BdTag) }),
		stateless("bridge-zero", "l2_api.c vl_api_sw_interface_set_l2_bridge_t_handler, l2_bd.c bd_find_or_add_bd_index, VPP 24.06",
			"VPP drops frames in bridge domain 0: the interface is cut off, and no dump shows it there",
			func(m *l2.SwInterfaceSetL2Bridge) string {
				if m.BdID == 0 {
					return when(m.Enable, "bridge domain 0")
				}
				return when(m.Enable && m.BdID > maxBridge, "bridge domain %d: must be at most %d", m.BdID, maxBridge)
			}),
		stateless("vxlan-vni", "vxlan.c vnet_vxlan_add_del_tunnel (shifts the VNI by 8 bits), VPP 24.06",
			"VPP truncates the VNI without an error: the tunnel joins another network",
			func(m *vxlan.VxlanAddDelTunnelV3) string {
				return when(m.Vni > maxVNI, "VNI %d is above %d", m.Vni, maxVNI)
			}),
		stateless("span-index", "span.c span_add_delete_entry (vec_validate by a number nobody looks at), VPP 24.06",
			"VPP allocates for every interface up to that number, and crashes when memory ends",
			func(m *span.SwInterfaceSpanEnableDisable) string {
				return when(m.SwIfIndexFrom > maxIndex || m.State != 0 && m.SwIfIndexTo > maxIndex, "interfaces %d and %d", m.SwIfIndexFrom, m.SwIfIndexTo)
			}),
		stateless("xconnect-self", "l2_api.c vl_api_sw_interface_set_l2_xconnect_t_handler, VPP 24.06", "every frame is sent back to its sender",
			func(m *l2.SwInterfaceSetL2Xconnect) string {
				return when(m.Enable && m.RxSwIfIndex == m.TxSwIfIndex, "interface %d to itself", m.RxSwIfIndex)
			}),
	}
}
