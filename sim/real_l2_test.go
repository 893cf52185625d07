package sim

import (
	"fmt"
	"net/netip"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/arp"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/vxlan"
)

func join(i interface_types.InterfaceIndex, bd uint32, port l2.L2PortType) api.Message {
	return &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: i, BdID: bd, PortType: port, Enable: true}
}

func leave(i interface_types.InterfaceIndex) api.Message {
	return &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: i}
}

func cross(rx, tx interface_types.InterfaceIndex) api.Message {
	return &l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: rx, TxSwIfIndex: tx, Enable: true}
}

func tunnel(add bool, src, dst string, change func(*vxlan.VxlanAddDelTunnelV3)) api.Message {
	address := func(s string) ip_types.Address { return toAddress(netip.MustParseAddr(s)) }
	m := &vxlan.VxlanAddDelTunnelV3{
		IsAdd: add, Instance: noIndex, SrcAddress: address(src), DstAddress: address(dst), Vni: 5, DecapNextIndex: noIndex,
		McastSwIfIndex: interface_types.InterfaceIndex(noIndex),
	}
	change(m)
	return m
}

// layer2Story is a sequence of requests with interfaces 1 to 3, for every branch of every handler.
func layer2Story() []api.Message {
	mac := func(b byte) [6]byte { return [6]byte{2, 0, 0, 0, 0, b} }
	entry := func(bd uint32, a string, b byte) l2.BdIPMac {
		return l2.BdIPMac{BdID: bd, IP: toAddress(netip.MustParseAddr(a)), Mac: mac(b)}
	}
	none := func(*vxlan.VxlanAddDelTunnelV3) {}
	return []api.Message{
		&l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 7, Flood: true, Learn: true, MacAge: 3, BdTag: "seven"},
		&l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 7},
		&l2.BridgeDomainAddDelV2{IsAdd: true, BdID: maxBridge + 1},
		&l2.BridgeDomainAddDelV2{BdID: 8},
		&l2.BridgeDomainAddDelV2{BdID: 0},
		&l2.BridgeFlags{BdID: 0}, &l2.BridgeFlags{BdID: 8}, &l2.BridgeDomainSetMacAge{BdID: 0}, &l2.BridgeDomainSetMacAge{BdID: 8},
		&l2.BridgeDomainSetMacAge{BdID: 7, MacAge: 9},
		&l2.BdIPMacAddDel{IsAdd: true, Entry: entry(0, "10.0.0.1", 1)}, &l2.BdIPMacAddDel{IsAdd: true, Entry: entry(8, "10.0.0.1", 1)},
		&l2.BdIPMacAddDel{IsAdd: true, Entry: entry(7, "10.0.0.1", 1)}, &l2.BdIPMacAddDel{IsAdd: true, Entry: entry(7, "10.0.0.1", 2)},
		&l2.BdIPMacAddDel{Entry: entry(7, "10.0.0.1", 1)}, &l2.BdIPMacAddDel{Entry: entry(7, "10.0.0.2", 1)},
		&l2.BdIPMacAddDel{IsAdd: true, Entry: entry(7, "2001:db8::1", 1)},
		join(9, 7, 0), join(1, maxBridge+1, 0), join(1, 7, 3), join(1, 7, l2.L2_API_PORT_TYPE_BVI), join(2, 7, l2.L2_API_PORT_TYPE_BVI),
		join(2, 7, 0), join(2, 7, 0), join(3, 99, 0),
		&l2.BridgeDomainAddDelV2{BdID: 7},
		&l2.L2fibAddDel{IsAdd: true, BdID: 8}, &l2.L2fibAddDel{IsAdd: true, BdID: 7, SwIfIndex: 9}, &l2.L2fibAddDel{IsAdd: true, BdID: 7, SwIfIndex: 0},
		&l2.L2fibAddDel{IsAdd: true, BdID: 7, SwIfIndex: 2, Mac: mac(5), StaticMac: true},
		&l2.L2fibAddDel{IsAdd: true, BdID: 7, Mac: mac(6), FilterMac: true},
		&l2.L2fibAddDel{IsAdd: true, BdID: 7, SwIfIndex: 2, Mac: mac(7)},
		&l2.L2fibAddDel{BdID: 7, SwIfIndex: 1, Mac: mac(5)}, &l2.L2fibAddDel{BdID: 7, SwIfIndex: 2, Mac: mac(8)}, &l2.L2fibAddDel{BdID: 7, Mac: mac(7)},
		cross(9, 1), cross(1, 9), cross(3, 2), cross(3, 1),
		&interfaces_.SwInterfaceSetMacAddress{SwIfIndex: 1, MacAddress: mac(9)},
		leave(1), leave(1), leave(2),
		&l2.BridgeDomainAddDelV2{BdID: 7}, &l2.BridgeDomainAddDelV2{BdID: 99},
		&l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 10, BdTag: "gets the place of seven"},
		join(1, 10, 0),
		&interfaces_.DeleteLoopback{SwIfIndex: 3},
		tunnel(true, "10.0.0.1", "10.0.0.1", none), tunnel(true, "10.0.0.1", "2001:db8::1", none),
		tunnel(true, "10.0.0.1", "10.0.0.2", func(m *vxlan.VxlanAddDelTunnelV3) { m.EncapVrfID = 77 }),
		tunnel(true, "10.0.0.1", "239.1.1.1", none),
		tunnel(true, "10.0.0.1", "10.0.0.2", none), tunnel(true, "10.0.0.1", "10.0.0.2", none), tunnel(false, "10.0.0.1", "10.0.0.3", none),
		tunnel(true, "10.0.0.1", "239.1.1.1", func(m *vxlan.VxlanAddDelTunnelV3) { m.McastSwIfIndex = 1 }),
		tunnel(true, "2001:db8::2", "2001:db8::1", none), tunnel(true, "2001:db8::3", "2001:db8::1", none),
		tunnel(false, "10.0.0.1", "239.1.1.1", none), tunnel(false, "10.0.0.1", "239.1.1.1", func(m *vxlan.VxlanAddDelTunnelV3) { m.McastSwIfIndex = 2 }),
		join(3, 10, 0), tunnel(false, "10.0.0.1", "10.0.0.2", none),
		&interfaces_.CreateVlanSubif{SwIfIndex: 99, VlanID: 5}, &interfaces_.CreateVlanSubif{SwIfIndex: 2}, &interfaces_.CreateVlanSubif{SwIfIndex: 2, VlanID: 4096},
		&interfaces_.CreateVlanSubif{SwIfIndex: 2, VlanID: 5}, &interfaces_.CreateVlanSubif{SwIfIndex: 2, VlanID: 5},
		&interfaces_.SwInterfaceSetFlags{SwIfIndex: 3, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP},
		&interfaces_.SwInterfaceSetFlags{SwIfIndex: 2, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP},
		&interfaces_.SwInterfaceSetFlags{SwIfIndex: 3, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP},
		&interfaces_.SwInterfaceSetFlags{SwIfIndex: 2},
		&interfaces_.DeleteSubif{SwIfIndex: 2}, &interfaces_.DeleteSubif{SwIfIndex: 99}, &interfaces_.DeleteSubif{SwIfIndex: 3},
		&interfaces_.CreateVlanSubif{SwIfIndex: 2, VlanID: 7}, &interfaces_.DeleteLoopback{SwIfIndex: 2},
		&span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 1, State: 1}, &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 2, State: 4},
		&span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: interface_types.InterfaceIndex(noIndex), SwIfIndexTo: 2, State: 1}, &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 50, State: 3},
		&span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 50, State: 1, IsL2: true}, &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 50},
		&arp.ProxyArpAddDel{IsAdd: true, Proxy: arp.ProxyArp{TableID: 9}}, &arp.ProxyArpAddDel{Proxy: arp.ProxyArp{Low: [4]byte{1}, Hi: [4]byte{2}}},
		&arp.ProxyArpAddDel{IsAdd: true, Proxy: arp.ProxyArp{Low: [4]byte{1}, Hi: [4]byte{2}}}, &arp.ProxyArpAddDel{IsAdd: true, Proxy: arp.ProxyArp{Low: [4]byte{1}, Hi: [4]byte{2}}},
		&ip_neighbor.IPNeighborConfigGet{}, &ip_neighbor.IPNeighborConfig{MaxNumber: 7, MaxAge: 240, Recycle: true}, &ip_neighbor.IPNeighborConfigGet{},
		&ip_neighbor.IPNeighborConfigGet{Af: 1}, &ip_neighbor.IPNeighborConfigGet{Af: 2}, &ip_neighbor.IPNeighborConfig{Af: 2},
		&arp.ProxyArpIntfcEnableDisable{SwIfIndex: 88, Enable: true}, &arp.ProxyArpIntfcEnableDisable{SwIfIndex: 1, Enable: true},
		&arp.ProxyArpIntfcEnableDisable{SwIfIndex: 1}, &arp.ProxyArpIntfcEnableDisable{SwIfIndex: 1, Enable: true}, &interfaces_.DeleteLoopback{SwIfIndex: 1},
	}
}

// TestAgainstRealVPPLayer2: the sim answers as a real VPP does, and both show the same state in between and at the end.
func TestAgainstRealVPPLayer2(t *testing.T) {
	real, fake := realVPP(t), dial(t, New(Config{}))
	for range 3 {
		m := &interfaces_.CreateLoopback{}
		answerText(fake, m)
		answerText(real, m)
	}
	for n, m := range layer2Story() {
		if want, got := answerText(real, m), answerText(fake, m); want != got {
			t.Errorf("step %d, %s %+v:\nvpp: %s\nsim: %s", n, m.GetMessageName(), m, want, got)
		}
		if want, got := layer2Dumps(real), layer2Dumps(fake); want != got {
			t.Fatalf("after step %d, %s %+v:\nvpp: %s\nsim: %s", n, m.GetMessageName(), m, want, got)
		}
	}
}

func layer2Dumps(c *client) (out string) {
	for _, d := range dump[*l2.BridgeDomainDetails](c, &l2.BridgeDomainDump{BdID: noIndex, SwIfIndex: interface_types.InterfaceIndex(noIndex)}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	for _, d := range dump[*l2.BdIPMacDetails](c, &l2.BdIPMacDump{BdID: noIndex}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	for _, d := range dump[*l2.L2XconnectDetails](c, &l2.L2XconnectDump{}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	for _, d := range dump[*vxlan.VxlanTunnelV2Details](c, &vxlan.VxlanTunnelV2Dump{SwIfIndex: interface_types.InterfaceIndex(noIndex)}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	for _, l2 := range []bool{false, true} {
		for _, d := range dump[*span.SwInterfaceSpanDetails](c, &span.SwInterfaceSpanDump{IsL2: l2}) {
			out += fmt.Sprintf("%+v\n", d)
		}
	}
	for _, d := range dump[*arp.ProxyArpDetails](c, &arp.ProxyArpDump{}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	for _, d := range dump[*arp.ProxyArpIntfcDetails](c, &arp.ProxyArpIntfcDump{}) {
		out += fmt.Sprintf("proxy on %d\n", d.SwIfIndex)
	}
	for _, d := range dump[*interfaces_.SwInterfaceDetails](c, &interfaces_.SwInterfaceDump{}) {
		out += fmt.Sprintf("%d of %d: %s %s sub %d vlan %d tags %d %s\n", d.SwIfIndex, d.SupSwIfIndex, cString(d.InterfaceName), d.Flags&1, d.SubID, d.SubOuterVlanID, d.SubNumberOfTags, d.SubIfFlags)
	}
	lines := map[[6]byte]string{}
	for _, d := range dump[*l2.L2FibTableDetails](c, &l2.L2FibTableDump{BdID: noIndex}) {
		lines[d.Mac] = fmt.Sprintf("%+v", d)
	}
	return out + fmt.Sprint(lines)
}
