package ifaces

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&interfaces.SwInterfaceSetFlags{}, &interfaces.SwInterfaceAddDelAddress{},
		&interfaces.SwInterfaceSetTable{}, &interfaces.SwInterfaceGetTable{}, &interfaces.SwInterfaceTagAddDel{},
		&interfaces.SwInterfaceSetMtu{}, &interfaces.SwInterfaceSetMacAddress{}, &ip.IPAddressDump{},
		&interfaces.SwInterfaceSetUnnumbered{}, &ip.IPUnnumberedDump{}, &ip.SwInterfaceIP6EnableDisable{},
		&interfaces.CreateLoopbackInstance{}, &interfaces.DeleteLoopback{},
		&tapv2.TapCreateV3{}, &tapv2.TapDeleteV2{}, &tapv2.SwInterfaceTapV2Dump{},
		&af_packet.AfPacketCreateV3{}, &af_packet.AfPacketDelete{}, &af_packet.AfPacketDump{},
		&memif.MemifCreateV2{}, &memif.MemifDelete{}, &memif.MemifDump{}, &memif.MemifSocketFilenameAddDelV2{}, &memif.MemifSocketFilenameDump{},
		&interfaces.CreateVlanSubif{}, &interfaces.DeleteSubif{},
		&vxlan.VxlanAddDelTunnelV3{}, &vxlan.VxlanTunnelV2Dump{},
	}
}
