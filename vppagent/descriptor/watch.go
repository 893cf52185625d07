package descriptor

import (
	"maps"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/abf"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/classify"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/punt"
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// WatchInterfaces calls changed whenever VPP reports that an interface came or changed its state, and gone with the index of
// one that went: VPP gives that index to the next one. VPP tells only those who asked on their connection:
// vpp.Config.OnConnect has to have OnConnect.
func WatchInterfaces(events interface {
	Events(msg api.Message, fn func(api.Message))
}, changed func(), gone func(swIfIndex uint32),
) {
	events.Events(&interfaces.SwInterfaceEvent{}, func(m api.Message) {
		if e := m.(*interfaces.SwInterfaceEvent); e.Deleted {
			gone(uint32(e.SwIfIndex))
		} else {
			changed()
		}
	})
}

// OnConnect are the requests that make VPP send the events of WatchInterfaces.
func OnConnect() []vpp.Call {
	return []vpp.Call{{Msg: &interfaces.WantInterfaceEvents{EnableDisable: 1}}}
}

// Needs are the messages the descriptors use, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceSetFlags{}, &interfaces.SwInterfaceAddDelAddress{},
		&interfaces.SwInterfaceSetTable{}, &interfaces.SwInterfaceGetTable{}, &interfaces.SwInterfaceTagAddDel{},
		&interfaces.SwInterfaceSetMtu{}, &interfaces.SwInterfaceSetMacAddress{}, &interfaces.WantInterfaceEvents{},
		&interfaces.CreateLoopbackInstance{}, &interfaces.DeleteLoopback{},
		&tapv2.TapCreateV3{}, &tapv2.TapDeleteV2{}, &tapv2.SwInterfaceTapV2Dump{},
		&af_packet.AfPacketCreateV3{}, &af_packet.AfPacketDelete{}, &af_packet.AfPacketDump{},
		&memif.MemifCreateV2{}, &memif.MemifDelete{}, &memif.MemifDump{}, &memif.MemifSocketFilenameAddDelV2{}, &memif.MemifSocketFilenameDump{},
		&interfaces.CreateVlanSubif{}, &interfaces.DeleteSubif{},
		&vxlan.VxlanAddDelTunnelV3{}, &vxlan.VxlanTunnelV2Dump{},
		&ip.IPTableAddDel{}, &ip.IPTableDump{}, &ip.IPRouteAddDel{}, &ip.IPRouteDump{}, &ip.IPRouteLookup{}, &ip.IPAddressDump{},
		&ip_neighbor.IPNeighborAddDel{}, &ip_neighbor.IPNeighborDump{}, &ip_neighbor.IPNeighborConfig{}, &ip_neighbor.IPNeighborConfigGet{},
		&nat44_ed.Nat44EdPluginEnableDisable{}, &nat44_ed.Nat44ForwardingEnableDisable{}, &nat44_ed.Nat44ShowRunningConfig{},
		&nat44_ed.NatSetTimeouts{}, &nat44_ed.Nat44AddDelAddressRange{}, &nat44_ed.Nat44AddressDump{},
		&nat44_ed.Nat44InterfaceAddDelFeature{}, &nat44_ed.Nat44InterfaceDump{},
		&nat44_ed.Nat44EdAddDelOutputInterface{}, &nat44_ed.Nat44EdOutputInterfaceGet{},
		&nat44_ed.Nat44AddDelLbStaticMapping{}, &nat44_ed.Nat44LbStaticMappingAddDelLocal{}, &nat44_ed.Nat44LbStaticMappingDump{},
		&nat44_ed.Nat44AddDelStaticMappingV2{}, &nat44_ed.Nat44StaticMappingDump{},
		&nat44_ed.Nat44AddDelIdentityMapping{}, &nat44_ed.Nat44IdentityMappingDump{}, &nat44_ed.NatWorkerDump{},
		&nat44_ed.Nat44UserDump{}, &nat44_ed.Nat44UserSessionV3Dump{}, &nat44_ed.Nat44DelSession{},
		&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLDump{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceListDump{},
		&vlib.CliInband{},
		&classify.ClassifyAddDelTable{}, &classify.ClassifyAddDelSession{}, &classify.InputACLSetInterface{}, &classify.OutputACLSetInterface{},
		&classify.ClassifyTableIds{}, &classify.ClassifyTableInfo{}, &classify.ClassifySessionDump{},
		&l2.BridgeDomainAddDelV2{}, &l2.BridgeDomainDump{}, &l2.BridgeFlags{}, &l2.BridgeDomainSetMacAge{}, &l2.BdIPMacAddDel{}, &l2.BdIPMacDump{},
		&arp.ProxyArpAddDel{}, &arp.ProxyArpDump{}, &arp.ProxyArpIntfcEnableDisable{}, &arp.ProxyArpIntfcDump{},
		&abf.AbfPolicyAddDel{}, &abf.AbfPolicyDump{}, &abf.AbfItfAttachAddDel{}, &abf.AbfItfAttachDump{},
		&punt.PuntSocketRegister{}, &punt.PuntSocketDeregister{}, &punt.PuntSocketDump{}, &punt.PuntReasonDump{},
		&ip.AddDelIPPuntRedirectV2{}, &ip.IPPuntRedirectV2Dump{},
		&span.SwInterfaceSpanEnableDisable{}, &span.SwInterfaceSpanDump{},
		&l2.SwInterfaceSetL2Bridge{}, &l2.L2fibAddDel{}, &l2.L2FibTableDump{}, &l2.SwInterfaceSetL2Xconnect{}, &l2.L2XconnectDump{},
	}
}

// CopyFrom makes w know what o knows, sharing nothing that changes.
func (w *World) CopyFrom(o *World) {
	w.Workers = o.Workers
	w.byName, w.byIdx = map[string]*Iface{}, map[uint32]*Iface{}
	copies := map[*Iface]*Iface{}
	of := func(i *Iface) *Iface {
		if copies[i] == nil {
			c := *i
			copies[i] = &c
		}
		return copies[i]
	}
	for n, i := range o.byName {
		w.byName[n] = of(i)
	}
	for n, i := range o.byIdx {
		w.byIdx[n] = of(i)
	}
	w.sockets, w.tried, w.bridges = maps.Clone(o.sockets), maps.Clone(o.tried), maps.Clone(o.bridges)
	w.hostLinks = maps.Clone(o.hostLinks)
	w.proxied, w.policies = maps.Clone(o.proxied), maps.Clone(o.policies)
	w.acls, w.enforced, w.Cost = o.acls.clone(), o.enforced, o.Cost
	w.lists, w.class = maps.Clone(o.lists), o.class.clone()
	w.cnat = cnatWorld{ids: maps.Clone(o.cnat.ids), newer: o.cnat.newer}
}
