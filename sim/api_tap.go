package sim

import (
	"cmp"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/contiv-agent/contiv-agent/sim/frame"
)

// tapParams are the fields that the dump of a tap adds to those of the interface.
type tapParams struct {
	host tapv2.SwInterfaceTapV2Details // the host side, as dumped
}

func tapMessages(t *apiTable) {
	onWrite(t, func(q *call, m *tapv2.TapCreateV3) *tapv2.TapCreateV3Reply {
		i, rv := q.createTap(m)
		return &tapv2.TapCreateV3Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *tapv2.TapCreateV2) *tapv2.TapCreateV2Reply {
		i, rv := q.createTap(&tapv2.TapCreateV3{
			ID: m.ID, UseRandomMac: m.UseRandomMac, MacAddress: m.MacAddress, TxRingSz: m.TxRingSz, RxRingSz: m.RxRingSz,
			HostMtuSet: m.HostMtuSet, HostMtuSize: m.HostMtuSize, HostMacAddrSet: m.HostMacAddrSet, HostMacAddr: m.HostMacAddr,
			HostIP4PrefixSet: m.HostIP4PrefixSet, HostIP4Prefix: m.HostIP4Prefix, HostIP6PrefixSet: m.HostIP6PrefixSet,
			HostIP6Prefix: m.HostIP6Prefix, TapFlags: m.TapFlags, HostNamespaceSet: m.HostNamespaceSet, HostNamespace: m.HostNamespace,
			HostIfNameSet: m.HostIfNameSet, HostIfName: m.HostIfName, HostBridgeSet: m.HostBridgeSet, HostBridge: m.HostBridge, Tag: m.Tag,
		})
		return &tapv2.TapCreateV2Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *tapv2.TapDeleteV2) *tapv2.TapDeleteV2Reply {
		return &tapv2.TapDeleteV2Reply{Retval: q.deleteKind(m.SwIfIndex, kindTap)}
	})
	onDump(t, func(q *call, m *tapv2.SwInterfaceTapV2Dump, send func(*tapv2.SwInterfaceTapV2Details)) {
		for _, f := range q.ifs.all() {
			if f.kind == kindTap && (uint32(m.SwIfIndex) == noIndex || uint32(m.SwIfIndex) == f.index) {
				d := f.tap.host
				d.SwIfIndex, d.ID, d.DevName = f.index, f.id, f.name
				send(&d)
			}
		}
	})
}

func (v *VPP) createTap(m *tapv2.TapCreateV3) (interface_types.InterfaceIndex, int32) {
	id := m.ID
	if id == noIndex {
		id = v.freeID(kindTap)
	}
	name := fmt.Sprintf("tap%d", id)
	if v.ifs.byName[name] != nil {
		return interface_types.InterfaceIndex(noIndex), rvInvalidInterface
	}
	f := &iface{name: name, kind: kindTap, devType: "virtio", id: id, mac: m.MacAddress, macGiven: !m.UseRandomMac, tag: cString(m.Tag)}
	if m.UseRandomMac {
		f.mac = frame.DerivedMAC(name)
	}
	f.tap.host = tapv2.SwInterfaceTapV2Details{
		TxRingSz: cmp.Or(m.TxRingSz, 256), RxRingSz: cmp.Or(m.RxRingSz, 256), TapFlags: m.TapFlags, HostMacAddr: frame.DerivedMAC("host-" + name),
		HostIfName: fmt.Sprintf("tap%d", id),
	}
	f.tap.setHost(m)
	if rv := v.openTap(f, m); rv != 0 {
		return interface_types.InterfaceIndex(noIndex), rv
	}
	v.event(f, false)
	return ifIndex(f), 0
}

// openTap makes the Linux side.
func (v *VPP) openTap(f *iface, m *tapv2.TapCreateV3) int32 {
	h := &f.tap.host
	end := &TapEnd{
		Namespace: h.HostNamespace, MAC: h.HostMacAddr, MTU: h.HostMtuSize,
		Persist: m.TapFlags&tapv2.TAP_API_FLAG_PERSIST != 0, Attach: m.TapFlags&tapv2.TAP_API_FLAG_ATTACH != 0,
	}
	_, carriesNothing := v.cfg.Wire.(noWire)
	switch {
	case end.Attach && !m.HostIfNameSet:
		return rvNoMatchingInterface
	case !carriesNothing && (m.TapFlags&tapv2.TAP_API_FLAG_TUN != 0 || m.HostBridgeSet || m.HostIP4GwSet || m.HostIP6GwSet):
		return rvUnsupported // the simulated one has no such Linux side
	}
	if m.HostIP4PrefixSet {
		end.Addrs = append(end.Addrs, netip.PrefixFrom(netip.AddrFrom4(m.HostIP4Prefix.Address), int(m.HostIP4Prefix.Len)))
	}
	if m.HostIP6PrefixSet {
		end.Addrs = append(end.Addrs, netip.PrefixFrom(netip.AddrFrom16(m.HostIP6Prefix.Address), int(m.HostIP6Prefix.Len)))
	}
	v.ifs.addIface(f)
	if err := v.cfg.Wire.Open(f.index, &HostLink{Name: h.HostIfName, Tap: end}); err != nil {
		v.ifs.removeIface(f)
		return rvSyscallError3
	}
	return 0
}

// setHost applies the optional parts of the host side.
func (p *tapParams) setHost(m *tapv2.TapCreateV3) {
	h := &p.host
	if m.HostMtuSet {
		h.HostMtuSize = m.HostMtuSize
	}
	if m.HostMacAddrSet {
		h.HostMacAddr = m.HostMacAddr
	}
	if m.HostIP4PrefixSet {
		h.HostIP4Prefix = m.HostIP4Prefix
	}
	if m.HostIP6PrefixSet {
		h.HostIP6Prefix = m.HostIP6Prefix
	}
	if m.HostNamespaceSet {
		h.HostNamespace = cString(m.HostNamespace)
	}
	if m.HostIfNameSet {
		h.HostIfName = cString(m.HostIfName)
	}
	if m.HostBridgeSet {
		h.HostBridge = cString(m.HostBridge)
	}
}
