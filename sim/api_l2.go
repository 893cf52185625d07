package sim

import (
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/sim/bridge"
)

const maxBridge = 1<<24 - 1

// bridgeAll are the default flags of a bridge domain.
const bridgeAll = l2.BRIDGE_API_FLAG_LEARN | l2.BRIDGE_API_FLAG_FWD | l2.BRIDGE_API_FLAG_FLOOD | l2.BRIDGE_API_FLAG_UU_FLOOD

// l2Messages: bridge domains, their members and addresses, the L2 FIB, cross-connects.
func l2Messages(t *apiTable) {
	onWrite(t, func(q *call, m *l2.BridgeDomainAddDelV2) *l2.BridgeDomainAddDelV2Reply {
		id, rv := q.bridgeAddDel(m)
		return &l2.BridgeDomainAddDelV2Reply{Retval: rv, BdID: id}
	})
	onWrite(t, func(q *call, m *l2.BridgeFlags) *l2.BridgeFlagsReply {
		rv := q.onBridge(m.BdID, func(b *bridge.Domain) int32 {
			if b.Flags |= m.Flags; !m.IsSet {
				b.Flags &^= m.Flags
			}
			return 0
		})
		return &l2.BridgeFlagsReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *l2.BridgeDomainSetMacAge) *l2.BridgeDomainSetMacAgeReply {
		rv := q.onBridge(m.BdID, func(b *bridge.Domain) int32 { b.Age = m.MacAge; return 0 })
		return &l2.BridgeDomainSetMacAgeReply{Retval: rv}
	})
	onDump(t, func(q *call, m *l2.BridgeDomainDump, send func(*l2.BridgeDomainDetails)) {
		for _, b := range q.l2.All() {
			if uint32(m.SwIfIndex) == noIndex && (m.BdID == noIndex || m.BdID == b.ID) {
				send(q.bridgeDetails(b))
			}
		}
	})
	onWrite(t, func(q *call, m *l2.BdIPMacAddDel) *l2.BdIPMacAddDelReply {
		rv := q.onBridge(m.Entry.BdID, func(b *bridge.Domain) int32 {
			a := fromAddress(m.Entry.IP)
			if m.IsAdd {
				b.MACs[a] = m.Entry.Mac
			} else if mac, ok := b.MACs[a]; !ok || mac != [6]byte(m.Entry.Mac) {
				return rvUnspecified
			} else {
				delete(b.MACs, a)
			}
			return 0
		})
		return &l2.BdIPMacAddDelReply{Retval: rv}
	})
	onDump(t, func(q *call, m *l2.BdIPMacDump, send func(*l2.BdIPMacDetails)) {
		for _, b := range q.l2.All() {
			for _, a := range slices.SortedFunc(maps.Keys(b.MACs), netip.Addr.Compare) {
				if m.BdID == noIndex || m.BdID == b.ID {
					send(&l2.BdIPMacDetails{Entry: l2.BdIPMac{BdID: b.ID, IP: toAddress(a), Mac: b.MACs[a]}})
				}
			}
		}
	})
	onWrite(t, func(q *call, m *l2.SwInterfaceSetL2Bridge) *l2.SwInterfaceSetL2BridgeReply {
		rv := q.onInterface(m.RxSwIfIndex, func(f *iface) int32 { return q.joinBridge(f, m) })
		return &l2.SwInterfaceSetL2BridgeReply{Retval: rv}
	})
	l2PortMessages(t)
}

// l2PortMessages: cross-connects and the L2 FIB.
func l2PortMessages(t *apiTable) {
	onWrite(t, func(q *call, m *l2.SwInterfaceSetL2Xconnect) *l2.SwInterfaceSetL2XconnectReply {
		rv := q.onInterface(m.RxSwIfIndex, func(f *iface) int32 {
			if !m.Enable {
				return q.setL2(f, bridge.Port{}, false)
			}
			return q.onInterface(m.TxSwIfIndex, func(peer *iface) int32 {
				return q.setL2(f, bridge.Port{Mode: bridge.CrossConnect, Peer: peer.index}, false)
			})
		})
		return &l2.SwInterfaceSetL2XconnectReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *l2.L2XconnectDump, send func(*l2.L2XconnectDetails)) {
		for _, f := range q.ifs.all() {
			if p := q.l2.Port(f.index); p.Mode == bridge.CrossConnect {
				send(&l2.L2XconnectDetails{RxSwIfIndex: ifIndex(f), TxSwIfIndex: interface_types.InterfaceIndex(p.Peer)})
			}
		}
	})
	onWrite(t, func(q *call, m *l2.L2fibAddDel) *l2.L2fibAddDelReply {
		return &l2.L2fibAddDelReply{Retval: q.l2fibAddDel(m)}
	})
	onDump(t, func(q *call, m *l2.L2FibTableDump, send func(*l2.L2FibTableDetails)) {
		for _, k := range q.l2.Keys() {
			id, e := noIndex, q.l2.FIB[k]
			if b := q.l2.Domains[k.Bridge]; b != nil {
				id = b.ID
			}
			if m.BdID == noIndex || m.BdID == id {
				send(&l2.L2FibTableDetails{
					BdID: id, Mac: k.MAC, SwIfIndex: interface_types.InterfaceIndex(e.Interface), StaticMac: e.Static, FilterMac: e.Filter, BviMac: e.BVI,
				})
			}
		}
	})
}

// onBridge refuses VPP's internal bridge domain and missing ones.
func (v *VPP) onBridge(id uint32, do func(*bridge.Domain) int32) int32 {
	if id == 0 {
		return rvBDNotModifiable
	}
	b := v.l2.Find(id)
	if b == nil {
		return rvNoSuchEntry
	}
	return do(b)
}

func (v *VPP) bridgeAddDel(m *l2.BridgeDomainAddDelV2) (uint32, int32) {
	id := m.BdID
	if m.IsAdd && id == noIndex {
		id = v.l2.FreeID()
	}
	b := v.l2.Find(id)
	switch {
	case m.IsAdd && b != nil:
		return id, rvBDAlreadyExists
	case m.IsAdd && id > maxBridge:
		return id, rvBDIDExceedsMax
	case m.IsAdd:
		b = v.l2.Add(&bridge.Domain{ID: id, Age: m.MacAge, Tag: cString(m.BdTag)})
		for flag, on := range map[l2.BdFlags]bool{
			l2.BRIDGE_API_FLAG_FLOOD: m.Flood, l2.BRIDGE_API_FLAG_UU_FLOOD: m.UuFlood, l2.BRIDGE_API_FLAG_FWD: m.Forward,
			l2.BRIDGE_API_FLAG_LEARN: m.Learn, l2.BRIDGE_API_FLAG_ARP_TERM: m.ArpTerm, l2.BRIDGE_API_FLAG_ARP_UFWD: m.ArpUfwd,
		} {
			if on {
				b.Flags |= flag
			}
		}
	case b == nil:
		return id, rvNoSuchEntry
	case b.Index == 0:
		return id, rvBDNotModifiable
	case len(b.Members) > 0:
		return id, rvBDInUse
	default: // the entries in the FIB remain, for the next owner of the index
		v.l2.Domains[b.Index] = nil
	}
	return id, 0
}

func (v *VPP) bridgeDetails(b *bridge.Domain) *l2.BridgeDomainDetails {
	has := func(f l2.BdFlags) bool { return b.Flags&f != 0 }
	d := &l2.BridgeDomainDetails{
		BdID: b.ID, Flood: has(l2.BRIDGE_API_FLAG_FLOOD), UuFlood: has(l2.BRIDGE_API_FLAG_UU_FLOOD), Forward: has(l2.BRIDGE_API_FLAG_FWD),
		Learn: has(l2.BRIDGE_API_FLAG_LEARN), ArpTerm: has(l2.BRIDGE_API_FLAG_ARP_TERM), ArpUfwd: has(l2.BRIDGE_API_FLAG_ARP_UFWD),
		MacAge: b.Age, BdTag: b.Tag, BviSwIfIndex: interface_types.InterfaceIndex(b.BVI), UuFwdSwIfIndex: interface_types.InterfaceIndex(noIndex),
	}
	for _, i := range b.Members {
		d.SwIfDetails = append(d.SwIfDetails, l2.BridgeDomainSwIf{SwIfIndex: interface_types.InterfaceIndex(i), Shg: v.l2.Port(i).Group})
	}
	return d
}

// joinBridge creates a missing bridge domain, without a tag. The sim does not have ports for unknown unicast.
func (v *VPP) joinBridge(f *iface, m *l2.SwInterfaceSetL2Bridge) int32 {
	switch {
	case m.PortType > l2.L2_API_PORT_TYPE_UU_FWD || m.PortType == l2.L2_API_PORT_TYPE_UU_FWD:
		return rvInvalidValue
	case !m.Enable:
		return v.setL2(f, bridge.Port{}, false)
	case m.BdID > maxBridge:
		return rvBDIDExceedsMax
	}
	b := v.l2.Find(m.BdID)
	if b == nil {
		b = v.l2.Add(&bridge.Domain{ID: m.BdID, Flags: bridgeAll})
	}
	return v.setL2(f, bridge.Port{Mode: bridge.Member, Domain: b, Group: m.Shg}, m.PortType == l2.L2_API_PORT_TYPE_BVI)
}

func (v *VPP) l2fibAddDel(m *l2.L2fibAddDel) int32 {
	b := v.l2.Find(m.BdID)
	if b == nil {
		return rvNoSuchEntry
	}
	k := bridge.Key{Bridge: b.Index, MAC: m.Mac}
	switch e, ok := v.l2.FIB[k]; {
	case m.IsAdd && m.FilterMac:
		v.l2.FIB[k] = bridge.Entry{Interface: noIndex, Static: true, Filter: true}
	case m.IsAdd:
		f := v.ifs.get(uint32(m.SwIfIndex))
		if f == nil || v.l2.Port(f.index).Mode != bridge.Member {
			return rvInvalidSwIfIndex
		}
		v.l2.FIB[k] = bridge.Entry{Interface: f.index, Static: m.StaticMac, BVI: m.BviMac}
	case !ok, m.SwIfIndex != 0 && uint32(m.SwIfIndex) != e.Interface:
		return rvNoSuchEntry
	default:
		delete(v.l2.FIB, k)
	}
	return 0
}

// setL2 gives an interface a role at layer 2.
func (v *VPP) setL2(f *iface, port bridge.Port, bvi bool) int32 {
	if !v.l2.Set(f.index, f.mac, port, bvi) {
		return rvBDHasBVI
	}
	return 0
}
