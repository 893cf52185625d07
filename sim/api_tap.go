package sim

import (
	"fmt"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/tap"
)

func tapMessages(t *apiTable) {
	onWrite(t, func(q *call, m *tapv2.TapCreateV3) *tapv2.TapCreateV3Reply {
		i, rv := q.createTap(m)
		return &tapv2.TapCreateV3Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *tapv2.TapCreateV2) *tapv2.TapCreateV2Reply {
		i, rv := q.createTap(tap.V3(m))
		return &tapv2.TapCreateV2Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *tapv2.TapDeleteV2) *tapv2.TapDeleteV2Reply {
		return &tapv2.TapDeleteV2Reply{Retval: q.deleteKind(m.SwIfIndex, kindTap)}
	})
	onDump(t, func(q *call, m *tapv2.SwInterfaceTapV2Dump, send func(*tapv2.SwInterfaceTapV2Details)) {
		for _, f := range q.ifs.all() {
			if f.kind == kindTap && (uint32(m.SwIfIndex) == noIndex || uint32(m.SwIfIndex) == f.index) {
				d := f.tap
				d.SwIfIndex, d.ID, d.DevName = f.index, f.id, f.name
				send(&d)
			}
		}
	})
}

// createTap also makes the Linux side, on a wire that carries packets.
func (v *VPP) createTap(m *tapv2.TapCreateV3) (interface_types.InterfaceIndex, int32) {
	id, none := m.ID, interface_types.InterfaceIndex(noIndex)
	if id == noIndex {
		id = v.freeID(kindTap)
	}
	name := fmt.Sprintf("tap%d", id)
	if v.ifs.byName[name] != nil {
		return none, rvInvalidInterface
	}
	f := &iface{name: name, kind: kindTap, devType: "virtio", id: id, mac: m.MacAddress, macGiven: !m.UseRandomMac, tag: cString(m.Tag), tap: tap.Details(m, id)}
	if m.UseRandomMac {
		f.mac = frame.DerivedMAC(name)
	}
	end := tap.EndOf(m, &f.tap)
	if end.Attach && !m.HostIfNameSet {
		return none, rvNoMatchingInterface
	}
	return v.createOn(f, &HostLink{Name: f.tap.HostIfName, Tap: end}, rvSyscallError3)
}
