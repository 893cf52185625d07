package sim

import (
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
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
		rv := q.onBridge(m.BdID, func(b *bridge) int32 {
			if b.flags |= m.Flags; !m.IsSet {
				b.flags &^= m.Flags
			}
			return 0
		})
		return &l2.BridgeFlagsReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *l2.BridgeDomainSetMacAge) *l2.BridgeDomainSetMacAgeReply {
		rv := q.onBridge(m.BdID, func(b *bridge) int32 { b.age = m.MacAge; return 0 })
		return &l2.BridgeDomainSetMacAgeReply{Retval: rv}
	})
	onDump(t, func(q *call, m *l2.BridgeDomainDump, send func(*l2.BridgeDomainDetails)) {
		for _, b := range q.l2.allBridges() {
			if uint32(m.SwIfIndex) == noIndex && (m.BdID == noIndex || m.BdID == b.id) {
				send(q.bridgeDetails(b))
			}
		}
	})
	onWrite(t, func(q *call, m *l2.BdIPMacAddDel) *l2.BdIPMacAddDelReply {
		rv := q.onBridge(m.Entry.BdID, func(b *bridge) int32 {
			a := fromAddress(m.Entry.IP)
			if m.IsAdd {
				b.macs[a] = m.Entry.Mac
			} else if mac, ok := b.macs[a]; !ok || mac != [6]byte(m.Entry.Mac) {
				return rvUnspecified
			} else {
				delete(b.macs, a)
			}
			return 0
		})
		return &l2.BdIPMacAddDelReply{Retval: rv}
	})
	onDump(t, func(q *call, m *l2.BdIPMacDump, send func(*l2.BdIPMacDetails)) {
		for _, b := range q.l2.allBridges() {
			for _, a := range slices.SortedFunc(maps.Keys(b.macs), netip.Addr.Compare) {
				if m.BdID == noIndex || m.BdID == b.id {
					send(&l2.BdIPMacDetails{Entry: l2.BdIPMac{BdID: b.id, IP: toAddress(a), Mac: b.macs[a]}})
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
				return q.setL2(f, l2Port{}, false)
			}
			return q.onInterface(m.TxSwIfIndex, func(peer *iface) int32 {
				return q.setL2(f, l2Port{mode: l2Xconnect, peer: peer.index}, false)
			})
		})
		return &l2.SwInterfaceSetL2XconnectReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *l2.L2XconnectDump, send func(*l2.L2XconnectDetails)) {
		for _, f := range q.ifs.all() {
			if f.l2.mode == l2Xconnect {
				send(&l2.L2XconnectDetails{RxSwIfIndex: ifIndex(f), TxSwIfIndex: interface_types.InterfaceIndex(f.l2.peer)})
			}
		}
	})
	onWrite(t, func(q *call, m *l2.L2fibAddDel) *l2.L2fibAddDelReply {
		return &l2.L2fibAddDelReply{Retval: q.l2fibAddDel(m)}
	})
	onDump(t, func(q *call, m *l2.L2FibTableDump, send func(*l2.L2FibTableDetails)) {
		for _, k := range q.l2.keys() {
			id, e := noIndex, q.l2.fib[k]
			if b := q.l2.bridges[k.bridge]; b != nil {
				id = b.id
			}
			if m.BdID == noIndex || m.BdID == id {
				send(&l2.L2FibTableDetails{
					BdID: id, Mac: k.mac, SwIfIndex: interface_types.InterfaceIndex(e.swIf), StaticMac: e.static, FilterMac: e.filter, BviMac: e.bvi,
				})
			}
		}
	})
}

// onBridge refuses VPP's internal bridge domain and missing ones.
func (v *VPP) onBridge(id uint32, do func(*bridge) int32) int32 {
	if id == 0 {
		return rvBDNotModifiable
	}
	b := v.l2.findBridge(id)
	if b == nil {
		return rvNoSuchEntry
	}
	return do(b)
}

func (v *VPP) bridgeAddDel(m *l2.BridgeDomainAddDelV2) (uint32, int32) {
	id := m.BdID
	if m.IsAdd && id == noIndex {
		id = v.l2.freeID()
	}
	b := v.l2.findBridge(id)
	switch {
	case m.IsAdd && b != nil:
		return id, rvBDAlreadyExists
	case m.IsAdd && id > maxBridge:
		return id, rvBDIDExceedsMax
	case m.IsAdd:
		b = v.l2.addBridge(&bridge{id: id, age: m.MacAge, tag: cString(m.BdTag)})
		for flag, on := range map[l2.BdFlags]bool{
			l2.BRIDGE_API_FLAG_FLOOD: m.Flood, l2.BRIDGE_API_FLAG_UU_FLOOD: m.UuFlood, l2.BRIDGE_API_FLAG_FWD: m.Forward,
			l2.BRIDGE_API_FLAG_LEARN: m.Learn, l2.BRIDGE_API_FLAG_ARP_TERM: m.ArpTerm, l2.BRIDGE_API_FLAG_ARP_UFWD: m.ArpUfwd,
		} {
			if on {
				b.flags |= flag
			}
		}
	case b == nil:
		return id, rvNoSuchEntry
	case b.index == 0:
		return id, rvBDNotModifiable
	case len(b.members) > 0:
		return id, rvBDInUse
	default: // the entries in the FIB remain, for the next owner of the index
		v.l2.bridges[b.index] = nil
	}
	return id, 0
}

func (v *VPP) bridgeDetails(b *bridge) *l2.BridgeDomainDetails {
	has := func(f l2.BdFlags) bool { return b.flags&f != 0 }
	d := &l2.BridgeDomainDetails{
		BdID: b.id, Flood: has(l2.BRIDGE_API_FLAG_FLOOD), UuFlood: has(l2.BRIDGE_API_FLAG_UU_FLOOD), Forward: has(l2.BRIDGE_API_FLAG_FWD),
		Learn: has(l2.BRIDGE_API_FLAG_LEARN), ArpTerm: has(l2.BRIDGE_API_FLAG_ARP_TERM), ArpUfwd: has(l2.BRIDGE_API_FLAG_ARP_UFWD),
		MacAge: b.age, BdTag: b.tag, BviSwIfIndex: interface_types.InterfaceIndex(b.bvi), UuFwdSwIfIndex: interface_types.InterfaceIndex(noIndex),
	}
	for _, i := range b.members {
		f := v.ifs.get(i)
		d.SwIfDetails = append(d.SwIfDetails, l2.BridgeDomainSwIf{SwIfIndex: ifIndex(f), Shg: f.l2.group})
	}
	return d
}

// joinBridge creates a missing bridge domain, without a tag. The sim does not have ports for unknown unicast.
func (v *VPP) joinBridge(f *iface, m *l2.SwInterfaceSetL2Bridge) int32 {
	switch {
	case m.PortType > l2.L2_API_PORT_TYPE_UU_FWD || m.PortType == l2.L2_API_PORT_TYPE_UU_FWD:
		return rvInvalidValue
	case !m.Enable:
		return v.setL2(f, l2Port{}, false)
	case m.BdID > maxBridge:
		return rvBDIDExceedsMax
	}
	b := v.l2.findBridge(m.BdID)
	if b == nil {
		b = v.l2.addBridge(&bridge{id: m.BdID, flags: bridgeAll})
	}
	return v.setL2(f, l2Port{mode: l2Bridge, bridge: b, group: m.Shg}, m.PortType == l2.L2_API_PORT_TYPE_BVI)
}

func (v *VPP) l2fibAddDel(m *l2.L2fibAddDel) int32 {
	b := v.l2.findBridge(m.BdID)
	if b == nil {
		return rvNoSuchEntry
	}
	k := l2Key{b.index, m.Mac}
	switch e, ok := v.l2.fib[k]; {
	case m.IsAdd && m.FilterMac:
		v.l2.fib[k] = l2Entry{swIf: noIndex, static: true, filter: true}
	case m.IsAdd:
		f := v.ifs.get(uint32(m.SwIfIndex))
		if f == nil || f.l2.mode != l2Bridge {
			return rvInvalidSwIfIndex
		}
		v.l2.fib[k] = l2Entry{swIf: f.index, static: m.StaticMac, bvi: m.BviMac}
	case !ok, m.SwIfIndex != 0 && uint32(m.SwIfIndex) != e.swIf:
		return rvNoSuchEntry
	default:
		delete(v.l2.fib, k)
	}
	return 0
}
