package sim

import (
	"strings"

	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// interfaceMessages: interface, without creation and deletion.
func interfaceMessages(t *apiTable) {
	onDump(t, func(q *call, m *interfaces_.SwInterfaceDump, send func(*interfaces_.SwInterfaceDetails)) {
		q.interfaceDump(m, send)
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceSetFlags) *interfaces_.SwInterfaceSetFlagsReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			up := m.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0
			if up && f.kind == kindSub && !q.ifs.get(f.parent).up {
				return rvUnspecified
			}
			q.setUp(f, up)
			return 0
		})
		return &interfaces_.SwInterfaceSetFlagsReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceAddDelAddress) *interfaces_.SwInterfaceAddDelAddressReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.addressAddDel(f, m) })
		return &interfaces_.SwInterfaceAddDelAddressReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceSetTable) *interfaces_.SwInterfaceSetTableReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.setTable(f, fam6(m.IsIPv6), m.VrfID) })
		return &interfaces_.SwInterfaceSetTableReply{Retval: rv}
	})
	onRead(t, func(q *call, m *interfaces_.SwInterfaceGetTable) *interfaces_.SwInterfaceGetTableReply {
		f := q.ifs.get(uint32(m.SwIfIndex))
		if f == nil {
			return &interfaces_.SwInterfaceGetTableReply{Retval: rvInvalidSwIfIndex, VrfID: noIndex}
		}
		return &interfaces_.SwInterfaceGetTableReply{VrfID: f.table[fam6(m.IsIPv6)]}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceTagAddDel) *interfaces_.SwInterfaceTagAddDelReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return setTag(f, m) })
		return &interfaces_.SwInterfaceTagAddDelReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceSetMtu) *interfaces_.SwInterfaceSetMtuReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { copy(f.mtu[:], m.Mtu); return 0 })
		return &interfaces_.SwInterfaceSetMtuReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *interfaces_.HwInterfaceSetMtu) *interfaces_.HwInterfaceSetMtuReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { f.linkMTU = m.Mtu; return 0 })
		return &interfaces_.HwInterfaceSetMtuReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceSetMacAddress) *interfaces_.SwInterfaceSetMacAddressReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			q.l2.MACChanged(f.index, m.MacAddress)
			if f.mac, f.macGiven = m.MacAddress, true; f.kind == kindAfPacket {
				q.cfg.Wire.SetMAC(f.index, f.mac)
			}
			return 0
		})
		return &interfaces_.SwInterfaceSetMacAddressReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceSetInterfaceName) *interfaces_.SwInterfaceSetInterfaceNameReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.ifs.rename(f, cString(m.Name)) })
		return &interfaces_.SwInterfaceSetInterfaceNameReply{Retval: rv}
	})
	onRead(t, func(q *call, m *interfaces_.SwInterfaceGetMacAddress) *interfaces_.SwInterfaceGetMacAddressReply {
		f := q.ifs.get(uint32(m.SwIfIndex))
		if f == nil {
			return &interfaces_.SwInterfaceGetMacAddressReply{Retval: rvInvalidSwIfIndex}
		}
		return &interfaces_.SwInterfaceGetMacAddressReply{MacAddress: f.mac}
	})
	onWrite(t, func(q *call, m *interfaces_.SwInterfaceSetUnnumbered) *interfaces_.SwInterfaceSetUnnumberedReply {
		return &interfaces_.SwInterfaceSetUnnumberedReply{Retval: q.setUnnumbered(m)}
	})
	onRead(t, func(q *call, m *interfaces_.WantInterfaceEvents) *interfaces_.WantInterfaceEventsReply {
		return &interfaces_.WantInterfaceEventsReply{Retval: q.wantEvents(m)}
	})
	t.know(&interfaces_.SwInterfaceEvent{})
}

func ifIndex(f *iface) interface_types.InterfaceIndex { return interface_types.InterfaceIndex(f.index) }

// onInterface is VALIDATE_SW_IF_INDEX.
func (v *VPP) onInterface(i interface_types.InterfaceIndex, do func(*iface) int32) int32 {
	f := v.ifs.get(uint32(i))
	if f == nil {
		return rvInvalidSwIfIndex
	}
	return do(f)
}

// interfaceDump: 0 and ~0 both mean all; a name filter matches any part of the name, and disables the index.
func (v *VPP) interfaceDump(m *interfaces_.SwInterfaceDump, send func(*interfaces_.SwInterfaceDetails)) {
	if i := uint32(m.SwIfIndex); !m.NameFilterValid && i != noIndex && i != 0 {
		if f := v.ifs.get(i); f != nil {
			send(f.details())
		}
		return
	}
	filter := ""
	if m.NameFilterValid {
		filter = strings.ToLower(strings.TrimRight(m.NameFilter, "\x00"))
	}
	for _, f := range v.ifs.all() {
		if strings.Contains(strings.ToLower(f.name), filter) {
			send(f.details())
		}
	}
}

func (f *iface) flags() interface_types.IfStatusFlags {
	if !f.up {
		return 0
	}
	return interface_types.IF_STATUS_API_FLAG_ADMIN_UP | interface_types.IF_STATUS_API_FLAG_LINK_UP
}

func (f *iface) details() *interfaces_.SwInterfaceDetails {
	super, typ := f.index, interface_types.IF_API_TYPE_HARDWARE
	if f.kind == kindPipeEnd {
		super, typ = f.pipe[0], interface_types.IF_API_TYPE_PIPE
	}
	d := &interfaces_.SwInterfaceDetails{
		SwIfIndex: ifIndex(f), SupSwIfIndex: super, Type: typ, L2Address: f.mac, Flags: f.flags(), LinkMtu: f.linkMTU,
		Mtu: f.mtu[:], InterfaceName: f.name, InterfaceDevType: f.devType, Tag: f.tag,
	}
	f.subDetails(d)
	return d
}

func (v *VPP) addressAddDel(f *iface, m *interfaces_.SwInterfaceAddDelAddress) int32 {
	if m.DelAll {
		for len(f.addrs) > 0 {
			v.delAddress(f, f.addrs[0])
		}
		return 0
	}
	p := fromPrefix(ip_types.Prefix(m.Prefix))
	switch {
	case !p.IsValid():
		return rvInvalidPrefixLength
	case m.IsAdd:
		return v.addAddress(f, p)
	}
	return v.delAddress(f, p)
}

// setTable is ip_table_bind: the table must exist, and the interface must have no address of the family.
func (v *VPP) setTable(f *iface, fam int, id uint32) int32 {
	if t := v.fib[fam].findTable(id); t == nil || !t.bindable() {
		return rvNoSuchFIB
	}
	for _, p := range f.addrs {
		if family(p.Addr()) == fam {
			return rvAddressFoundOnIf
		}
	}
	v.bindTable(f, fam, id)
	return 0
}

func setTag(f *iface, m *interfaces_.SwInterfaceTagAddDel) int32 {
	tag := cString(m.Tag)
	switch {
	case !m.IsAdd:
		f.tag = ""
	case tag == "":
		return rvInvalidValue
	default:
		f.tag = tag
	}
	return 0
}

// cString returns a string[64] field as C reads it: up to the first zero byte, 63 at most.
func cString(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s[:min(len(s), 63)]
}

// setUnnumbered: the API file swaps the meanings of the two fields, and so does the sim.
func (v *VPP) setUnnumbered(m *interfaces_.SwInterfaceSetUnnumbered) int32 {
	f, lender := v.ifs.get(uint32(m.UnnumberedSwIfIndex)), v.ifs.get(uint32(m.SwIfIndex))
	switch {
	case f == nil:
		return rvInvalidSwIfIndex
	case m.IsAdd && lender == nil:
		return rvInvalidSwIfIndex2
	case m.IsAdd:
		f.unnumbered = lender.index
	default:
		f.unnumbered = noIndex
	}
	return 0
}

// ifEvent is an event that waits until the reply is sent.
type ifEvent struct {
	index   uint32
	flags   interface_types.IfStatusFlags
	deleted bool
}

func (v *VPP) event(f *iface, deleted bool) {
	v.events = append(v.events, ifEvent{index: f.index, flags: f.flags(), deleted: deleted})
}

// flushEvents sends the events to the subscribed clients. The caller holds v.mu.
func (v *VPP) flushEvents() {
	if len(v.events) == 0 {
		return
	}
	for c := range v.clients {
		if !c.wantsEvents {
			continue
		}
		for _, e := range v.events {
			m := &interfaces_.SwInterfaceEvent{PID: c.eventsPID, SwIfIndex: interface_types.InterfaceIndex(e.index), Flags: e.flags, Deleted: e.deleted}
			c.sendMessage(v.api.id(m, c.epoch), c.index, m)
		}
	}
	v.events = v.events[:0]
}

func (q *call) wantEvents(m *interfaces_.WantInterfaceEvents) int32 {
	on := m.EnableDisable != 0
	if on == q.c.wantsEvents {
		return rvInvalidRegistration
	}
	q.c.wantsEvents, q.c.eventsPID = on, m.PID
	return 0
}
