package sim

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/sim/nat44ed"
)

// nat44Messages: nat44_ed 5.5.0.
func nat44Messages(t *apiTable) {
	natPluginMessages(t)
	natInterfaceMessages(t)
	natMappingMessages(t)
	natSessionMessages(t)
}

func natAddr(a ip_types.IP4Address) netip.Addr { return netip.AddrFrom4(a) }

func toIP4(a netip.Addr) ip_types.IP4Address {
	if !a.IsValid() {
		return ip_types.IP4Address{}
	}
	return a.As4()
}

func natPluginMessages(t *apiTable) {
	onWrite(t, func(q *call, m *nat44_ed.Nat44EdPluginEnableDisable) *nat44_ed.Nat44EdPluginEnableDisableReply {
		rv := q.nat.PluginEnableDisable(m.Enable, nat44ed.PluginConfig{
			InsideVRF: m.InsideVrf, OutsideVRF: m.OutsideVrf, Sessions: m.Sessions,
			StaticMappingOnly:  m.Flags&nat44_ed.NAT44_IS_STATIC_MAPPING_ONLY != 0,
			ConnectionTracking: m.Flags&nat44_ed.NAT44_IS_CONNECTION_TRACKING != 0,
		})
		return &nat44_ed.Nat44EdPluginEnableDisableReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44ForwardingEnableDisable) *nat44_ed.Nat44ForwardingEnableDisableReply {
		return &nat44_ed.Nat44ForwardingEnableDisableReply{Retval: q.nat.ForwardingEnableDisable(m.Enable)}
	})
	onWrite(t, func(q *call, m *nat44_ed.NatSetTimeouts) *nat44_ed.NatSetTimeoutsReply {
		rv := q.nat.SetTimeouts(nat44ed.Timeouts{UDP: m.UDP, TCPEstablished: m.TCPEstablished, TCPTransitory: m.TCPTransitory, ICMP: m.ICMP})
		return &nat44_ed.NatSetTimeoutsReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44SetSessionLimit) *nat44_ed.Nat44SetSessionLimitReply {
		return &nat44_ed.Nat44SetSessionLimitReply{Retval: q.nat.SetSessionLimit(m.SessionLimit, m.VrfID)}
	})
	onWrite(t, func(q *call, m *nat44_ed.NatSetMssClamping) *nat44_ed.NatSetMssClampingReply {
		mss := m.MssValue
		if !m.Enable {
			mss = 0
		}
		return &nat44_ed.NatSetMssClampingReply{Retval: q.nat.SetMSSClamping(mss)}
	})
	onRead(t, func(q *call, _ *nat44_ed.NatGetMssClamping) *nat44_ed.NatGetMssClampingReply {
		mss := q.nat.MSSClamping()
		return &nat44_ed.NatGetMssClampingReply{MssValue: mss, Enable: mss != 0}
	})
	onWrite(t, func(q *call, _ *nat44_ed.NatSetWorkers) *nat44_ed.NatSetWorkersReply {
		if q.cfg.Workers < 2 {
			return &nat44_ed.NatSetWorkersReply{Retval: rvFeatureDisabled}
		}
		return &nat44_ed.NatSetWorkersReply{}
	})
	onDump(t, func(q *call, _ *nat44_ed.NatWorkerDump, send func(*nat44_ed.NatWorkerDetails)) {
		for i := range q.cfg.Workers {
			if q.cfg.Workers > 1 { // a single worker does all the work and is not listed
				send(&nat44_ed.NatWorkerDetails{WorkerIndex: uint32(i), LcoreID: uint32(i + 1), Name: fmt.Sprintf("vpp_wk_%d", i)})
			}
		}
	})
	onRead(t, func(q *call, _ *nat44_ed.Nat44ShowRunningConfig) *nat44_ed.Nat44ShowRunningConfigReply {
		return q.natConfig()
	})
}

func (v *VPP) natConfig() *nat44_ed.Nat44ShowRunningConfigReply {
	c := v.nat.RunningConfig()
	return &nat44_ed.Nat44ShowRunningConfigReply{
		InsideVrf: c.InsideVRF, OutsideVrf: c.OutsideVRF, Sessions: c.Sessions, TranslationBuckets: c.TranslationBuckets,
		ForwardingEnabled: c.Forwarding, Flags: nat44_ed.NAT44_IS_ENDPOINT_DEPENDENT,
		IpfixLoggingEnabled: true, // VPP reports the opposite (nat_ipfix_logging_enabled, 24.06)
		Timeouts: nat_types.NatTimeouts{
			UDP: c.Timeouts.UDP, TCPEstablished: c.Timeouts.TCPEstablished, TCPTransitory: c.Timeouts.TCPTransitory, ICMP: c.Timeouts.ICMP,
		},
	}
}

func natInterfaceMessages(t *apiTable) {
	onWrite(t, func(q *call, m *nat44_ed.Nat44InterfaceAddDelFeature) *nat44_ed.Nat44InterfaceAddDelFeatureReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			return q.nat.InterfaceAddDelFeature(m.IsAdd, f.index, nat44ed.Flags(m.Flags))
		})
		return &nat44_ed.Nat44InterfaceAddDelFeatureReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44InterfaceDump, send func(*nat44_ed.Nat44InterfaceDetails)) {
		for _, i := range q.nat.Interfaces() {
			send(&nat44_ed.Nat44InterfaceDetails{SwIfIndex: interface_types.InterfaceIndex(i.SwIf), Flags: nat_types.NatConfigFlags(i.Flags)})
		}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44EdAddDelOutputInterface) *nat44_ed.Nat44EdAddDelOutputInterfaceReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.nat.AddDelOutputInterface(m.IsAdd, f.index) })
		return &nat44_ed.Nat44EdAddDelOutputInterfaceReply{Retval: rv}
	})
	onRead(t, func(q *call, _ *nat44_ed.Nat44EdOutputInterfaceGet) *nat44_ed.Nat44EdOutputInterfaceGetReply {
		reply := &nat44_ed.Nat44EdOutputInterfaceGetReply{}
		for _, i := range q.nat.OutputInterfaces() {
			reply.Cursor = noIndex
			q.details(&nat44_ed.Nat44EdOutputInterfaceDetails{SwIfIndex: interface_types.InterfaceIndex(i)})
		}
		return reply
	})
	t.know(&nat44_ed.Nat44EdOutputInterfaceDetails{})
	natAddressMessages(t)
	natVRFMessages(t)
}

func natAddressMessages(t *apiTable) {
	onWrite(t, func(q *call, m *nat44_ed.Nat44AddDelAddressRange) *nat44_ed.Nat44AddDelAddressRangeReply {
		rv := q.nat.AddDelAddressRange(m.IsAdd, nat44ed.AddressRange{
			First: natAddr(m.FirstIPAddress), Last: natAddr(m.LastIPAddress), VRF: m.VrfID, Flags: nat44ed.Flags(m.Flags),
		})
		return &nat44_ed.Nat44AddDelAddressRangeReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44AddressDump, send func(*nat44_ed.Nat44AddressDetails)) {
		for _, a := range q.nat.Addresses() {
			send(&nat44_ed.Nat44AddressDetails{IPAddress: toIP4(a.Addr), VrfID: a.VRF, Flags: nat_types.NatConfigFlags(a.Flags)})
		}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44AddDelInterfaceAddr) *nat44_ed.Nat44AddDelInterfaceAddrReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			return q.nat.AddDelInterfaceAddr(m.IsAdd, f.index, nat44ed.Flags(m.Flags))
		})
		return &nat44_ed.Nat44AddDelInterfaceAddrReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44InterfaceAddrDump, send func(*nat44_ed.Nat44InterfaceAddrDetails)) {
		for _, a := range q.nat.InterfaceAddrs() {
			send(&nat44_ed.Nat44InterfaceAddrDetails{SwIfIndex: interface_types.InterfaceIndex(a.SwIf), Flags: nat_types.NatConfigFlags(a.Flags)})
		}
	})
}

func natVRFMessages(t *apiTable) {
	onWrite(t, func(q *call, m *nat44_ed.Nat44EdAddDelVrfTable) *nat44_ed.Nat44EdAddDelVrfTableReply {
		return &nat44_ed.Nat44EdAddDelVrfTableReply{Retval: q.nat.AddDelVRFTable(m.IsAdd, m.TableVrfID)}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44EdAddDelVrfRoute) *nat44_ed.Nat44EdAddDelVrfRouteReply {
		return &nat44_ed.Nat44EdAddDelVrfRouteReply{Retval: q.nat.AddDelVRFRoute(m.IsAdd, m.TableVrfID, m.VrfID)}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44EdVrfTablesV2Dump, send func(*nat44_ed.Nat44EdVrfTablesV2Details)) {
		for _, t := range q.nat.VRFTables() {
			send(&nat44_ed.Nat44EdVrfTablesV2Details{TableVrfID: t.Table, NVrfIds: uint32(len(t.Routes)), VrfIds: t.Routes})
		}
	})
}

func natMappingMessages(t *apiTable) {
	onWrite(t, func(q *call, m *nat44_ed.Nat44AddDelStaticMapping) *nat44_ed.Nat44AddDelStaticMappingReply {
		rv := q.nat.AddDelStaticMapping(m.IsAdd, nat44ed.StaticMapping{
			Local: natAddr(m.LocalIPAddress), External: natAddr(m.ExternalIPAddress), LocalPort: m.LocalPort, ExternalPort: m.ExternalPort,
			Proto: m.Protocol, ExternalIf: uint32(m.ExternalSwIfIndex), VRF: m.VrfID, Flags: nat44ed.Flags(m.Flags), Tag: cString(m.Tag),
		})
		return &nat44_ed.Nat44AddDelStaticMappingReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44AddDelStaticMappingV2) *nat44_ed.Nat44AddDelStaticMappingV2Reply {
		rv := q.nat.AddDelStaticMapping(m.IsAdd, nat44ed.StaticMapping{
			Local: natAddr(m.LocalIPAddress), External: natAddr(m.ExternalIPAddress), LocalPort: m.LocalPort, ExternalPort: m.ExternalPort,
			Proto: m.Protocol, ExternalIf: uint32(m.ExternalSwIfIndex), VRF: m.VrfID, Flags: nat44ed.Flags(m.Flags), Tag: cString(m.Tag),
			Pool: natAddr(m.PoolIPAddress),
		})
		return &nat44_ed.Nat44AddDelStaticMappingV2Reply{Retval: rv}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44StaticMappingDump, send func(*nat44_ed.Nat44StaticMappingDetails)) {
		for _, m := range q.nat.StaticMappings() {
			send(&nat44_ed.Nat44StaticMappingDetails{
				Flags: nat_types.NatConfigFlags(m.Flags), LocalIPAddress: toIP4(m.Local), ExternalIPAddress: toIP4(m.External), Protocol: m.Proto,
				LocalPort: m.LocalPort, ExternalPort: m.ExternalPort, ExternalSwIfIndex: interface_types.InterfaceIndex(m.ExternalIf),
				VrfID: m.VRF, Tag: m.Tag,
			})
		}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44AddDelIdentityMapping) *nat44_ed.Nat44AddDelIdentityMappingReply {
		rv := q.nat.AddDelIdentityMapping(m.IsAdd, nat44ed.IdentityMapping{
			Addr: natAddr(m.IPAddress), Port: m.Port, Proto: m.Protocol, SwIf: uint32(m.SwIfIndex), VRF: m.VrfID, Flags: nat44ed.Flags(m.Flags),
			Tag: cString(m.Tag),
		})
		return &nat44_ed.Nat44AddDelIdentityMappingReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44IdentityMappingDump, send func(*nat44_ed.Nat44IdentityMappingDetails)) {
		for _, m := range q.nat.IdentityMappings() {
			send(&nat44_ed.Nat44IdentityMappingDetails{
				Flags: nat_types.NatConfigFlags(m.Flags), IPAddress: toIP4(m.Addr), Protocol: m.Proto, Port: m.Port,
				SwIfIndex: interface_types.InterfaceIndex(m.SwIf), VrfID: m.VRF, Tag: m.Tag,
			})
		}
	})
	natLBMessages(t)
}

func fromLocal(l nat44_ed.Nat44LbAddrPort) nat44ed.Local {
	return nat44ed.Local{Addr: natAddr(l.Addr), Port: l.Port, Probability: l.Probability, VRF: l.VrfID}
}

func natLBMessages(t *apiTable) {
	onWrite(t, func(q *call, m *nat44_ed.Nat44AddDelLbStaticMapping) *nat44_ed.Nat44AddDelLbStaticMappingReply {
		b := nat44ed.LBMapping{
			External: natAddr(m.ExternalAddr), Port: m.ExternalPort, Proto: m.Protocol, Flags: nat44ed.Flags(m.Flags), Affinity: m.Affinity,
			Tag: cString(m.Tag), Locals: make([]nat44ed.Local, len(m.Locals)),
		}
		for i, l := range m.Locals {
			b.Locals[i] = fromLocal(l)
		}
		return &nat44_ed.Nat44AddDelLbStaticMappingReply{Retval: q.nat.AddDelLBStaticMapping(m.IsAdd, b)}
	})
	t.handlers[nameCRC(&nat44_ed.Nat44AddDelLbStaticMapping{})].fits = lbMappingFits
	onWrite(t, func(q *call, m *nat44_ed.Nat44LbStaticMappingAddDelLocal) *nat44_ed.Nat44LbStaticMappingAddDelLocalReply {
		rv := q.nat.LBStaticMappingAddDelLocal(m.IsAdd, natAddr(m.ExternalAddr), m.ExternalPort, m.Protocol, fromLocal(m.Local))
		return &nat44_ed.Nat44LbStaticMappingAddDelLocalReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *nat44_ed.Nat44LbStaticMappingDump, send func(*nat44_ed.Nat44LbStaticMappingDetails)) {
		for _, m := range q.nat.LBStaticMappings() {
			d := &nat44_ed.Nat44LbStaticMappingDetails{
				ExternalAddr: toIP4(m.External), ExternalPort: m.Port, Protocol: m.Proto, Flags: nat_types.NatConfigFlags(m.Flags),
				Affinity: m.Affinity, Tag: m.Tag, LocalNum: uint32(len(m.Locals)),
			}
			for _, l := range m.Locals {
				d.Locals = append(d.Locals, nat44_ed.Nat44LbAddrPort{Addr: toIP4(l.Addr), Port: l.Port, Probability: l.Probability, VrfID: l.VRF})
			}
			send(d)
		}
	})
}

// lbMappingFits compares local_num with the bytes of the message: 77 before the locals, 11 per local.
func lbMappingFits(body []byte) bool {
	const at, local = requestHeader + 77, 11
	return len(body) >= at+4 && uint64(len(body)-at-4) >= local*uint64(binary.BigEndian.Uint32(body[at:]))
}

func natSessionMessages(t *apiTable) {
	onDump(t, func(q *call, _ *nat44_ed.Nat44UserDump, send func(*nat44_ed.Nat44UserDetails)) {
		for _, u := range q.nat.Users() {
			send(&nat44_ed.Nat44UserDetails{VrfID: u.VRF, IPAddress: toIP4(u.Addr), Nsessions: u.Sessions, Nstaticsessions: u.StaticSessions})
		}
	})
	onDump(t, func(q *call, m *nat44_ed.Nat44UserSessionDump, send func(*nat44_ed.Nat44UserSessionDetails)) {
		for _, s := range q.nat.UserSessions(natAddr(m.IPAddress)) {
			d := sessionV3(s)
			send(&nat44_ed.Nat44UserSessionDetails{
				OutsideIPAddress: d.OutsideIPAddress, OutsidePort: d.OutsidePort, InsideIPAddress: d.InsideIPAddress, InsidePort: d.InsidePort,
				Protocol: d.Protocol, Flags: d.Flags, LastHeard: d.LastHeard, TotalBytes: d.TotalBytes, TotalPkts: d.TotalPkts,
				ExtHostAddress: d.ExtHostAddress, ExtHostPort: d.ExtHostPort, ExtHostNatAddress: d.ExtHostNatAddress, ExtHostNatPort: d.ExtHostNatPort,
			})
		}
	})
	onDump(t, func(q *call, m *nat44_ed.Nat44UserSessionV2Dump, send func(*nat44_ed.Nat44UserSessionV2Details)) {
		for _, s := range q.nat.UserSessions(natAddr(m.IPAddress)) {
			d := sessionV3(s)
			send(&nat44_ed.Nat44UserSessionV2Details{
				OutsideIPAddress: d.OutsideIPAddress, OutsidePort: d.OutsidePort, InsideIPAddress: d.InsideIPAddress, InsidePort: d.InsidePort,
				Protocol: d.Protocol, Flags: d.Flags, LastHeard: d.LastHeard, TotalBytes: d.TotalBytes, TotalPkts: d.TotalPkts,
				ExtHostAddress: d.ExtHostAddress, ExtHostPort: d.ExtHostPort, ExtHostNatAddress: d.ExtHostNatAddress, ExtHostNatPort: d.ExtHostNatPort,
				IsTimedOut: d.IsTimedOut,
			})
		}
	})
	onDump(t, func(q *call, m *nat44_ed.Nat44UserSessionV3Dump, send func(*nat44_ed.Nat44UserSessionV3Details)) {
		for _, s := range q.nat.UserSessions(natAddr(m.IPAddress)) {
			send(sessionV3(s))
		}
	})
	onWrite(t, func(q *call, m *nat44_ed.Nat44DelSession) *nat44_ed.Nat44DelSessionReply {
		rv := q.nat.DelSession(nat44ed.SessionKey{
			Addr: natAddr(m.Address), Port: m.Port, Ext: natAddr(m.ExtHostAddress), ExtPort: m.ExtHostPort, Proto: m.Protocol, VRF: m.VrfID,
		})
		return &nat44_ed.Nat44DelSessionReply{Retval: rv}
	})
}

func sessionV3(s nat44ed.UserSession) *nat44_ed.Nat44UserSessionV3Details {
	return &nat44_ed.Nat44UserSessionV3Details{
		OutsideIPAddress: toIP4(s.Outside.Addr()), OutsidePort: s.Outside.Port(), InsideIPAddress: toIP4(s.Inside.Addr()),
		InsidePort: s.Inside.Port(), Protocol: uint16(s.Proto), Flags: nat_types.NatConfigFlags(s.Flags),
		LastHeard: uint64(s.LastHeard.Seconds()), TimeSinceLastHeard: uint64(s.SinceLastHeard.Seconds()), TotalBytes: s.TotalBytes,
		TotalPkts: s.TotalPkts, ExtHostAddress: toIP4(s.ExtHost.Addr()), ExtHostPort: s.ExtHost.Port(),
		ExtHostNatAddress: toIP4(s.ExtHostNAT.Addr()), ExtHostNatPort: s.ExtHostNAT.Port(), IsTimedOut: s.TimedOut,
	}
}
