package vpp

import (
	"fmt"

	"go.fd.io/govpp/api"
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
		{
			Name: "bridge-tag", Messages: []string{"bridge_domain_add_del_v2"},
			Source: "l2_bd.c bd_set_bd_tag (formats a field of 64 bytes up to its NUL), VPP 24.06",
			Harm:   "the tag has no terminator: the bytes behind it in memory become part of it, and the owner of the bridge domain is lost",
			judge: func(_ *Guard, msg api.Message) string {
				return longTag(msg.(*l2.BridgeDomainAddDelV2).BdTag)
			},
		}, {
			Name: "bridge-zero", Messages: []string{"sw_interface_set_l2_bridge"},
			Source: "l2_api.c vl_api_sw_interface_set_l2_bridge_t_handler, l2_bd.c bd_find_or_add_bd_index, VPP 24.06",
			Harm:   "VPP drops frames in bridge domain 0: the interface is cut off, and no dump shows it there",
			judge: func(_ *Guard, msg api.Message) string {
				m := msg.(*l2.SwInterfaceSetL2Bridge)
				switch {
				case m.Enable && m.BdID == 0:
					return "bridge domain 0"
				case m.Enable && m.BdID > maxBridge:
					return fmt.Sprintf("bridge domain %d: must be at most %d", m.BdID, maxBridge)
				}
				return ""
			},
		}, {
			Name: "vxlan-vni", Messages: []string{"vxlan_add_del_tunnel_v3"},
			Source: "vxlan.c vnet_vxlan_add_del_tunnel (shifts the VNI by 8 bits), VPP 24.06",
			Harm:   "VPP truncates the VNI without an error: the tunnel joins another network",
			judge: func(_ *Guard, msg api.Message) string {
				if m := msg.(*vxlan.VxlanAddDelTunnelV3); m.Vni > maxVNI {
					return fmt.Sprintf("VNI %d is above %d", m.Vni, maxVNI)
				}
				return ""
			},
		}, {
			Name: "span-index", Messages: []string{"sw_interface_span_enable_disable"},
			Source: "span.c span_add_delete_entry (vec_validate by a number nobody looks at), VPP 24.06",
			Harm:   "VPP allocates for every interface up to that number, and crashes when memory ends",
			judge: func(_ *Guard, msg api.Message) string {
				if m := msg.(*span.SwInterfaceSpanEnableDisable); m.SwIfIndexFrom > maxIndex || m.State != 0 && m.SwIfIndexTo > maxIndex {
					return fmt.Sprintf("interfaces %d and %d", m.SwIfIndexFrom, m.SwIfIndexTo)
				}
				return ""
			},
		}, {
			Name: "xconnect-self", Messages: []string{"sw_interface_set_l2_xconnect"},
			Source: "l2_api.c vl_api_sw_interface_set_l2_xconnect_t_handler, VPP 24.06",
			Harm:   "every frame is sent back to its sender",
			judge: func(_ *Guard, msg api.Message) string {
				if m := msg.(*l2.SwInterfaceSetL2Xconnect); m.Enable && m.RxSwIfIndex == m.TxSwIfIndex {
					return fmt.Sprintf("interface %d to itself", m.RxSwIfIndex)
				}
				return ""
			},
		},
	}
}
