package l3

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&ip.IPTableAddDel{}, &ip.IPTableDump{}, &ip.IPRouteAddDel{}, &ip.IPRouteV2Dump{}, &ip.IPRouteLookup{}, &ip.IPAddressDump{},
		&ip_neighbor.IPNeighborAddDel{}, &ip_neighbor.IPNeighborDump{}, &ip_neighbor.IPNeighborConfig{}, &ip_neighbor.IPNeighborConfigGet{},
		&arp.ProxyArpAddDel{}, &arp.ProxyArpDump{}, &arp.ProxyArpIntfcEnableDisable{}, &arp.ProxyArpIntfcDump{},
	}
}
