package l2

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/span"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&l2.BridgeDomainAddDelV2{}, &l2.BridgeDomainDump{}, &l2.BridgeFlags{}, &l2.BridgeDomainSetMacAge{}, &l2.BdIPMacAddDel{}, &l2.BdIPMacDump{},
		&l2.SwInterfaceSetL2Bridge{}, &l2.L2fibAddDel{}, &l2.L2FibTableDump{}, &l2.SwInterfaceSetL2Xconnect{}, &l2.L2XconnectDump{},
		&span.SwInterfaceSpanEnableDisable{}, &span.SwInterfaceSpanDump{},
	}
}
