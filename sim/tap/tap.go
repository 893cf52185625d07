// Package tap turns VPP's requests for taps into the Linux interface that VPP would make, and into what a dump shows (tap_create_if of VPP 25.10,
// src/vnet/devices/tap/tap.c). No I/O.
//
// Invariant: a field whose flag is not set has no effect.
package tap

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/binapi/tapv2"

	"github.com/contiv-agent/contiv-agent/sim/frame"
)

// End is the Linux interface of a tap.
type End struct {
	Namespace       string // as clib_netns_open has it: a path, a name in /run/netns, or pid:N; "": VPP's
	MAC             frame.MAC
	MTU             uint32 // 0: the kernel's
	Addrs           []netip.Prefix
	Persist, Attach bool // it outlives VPP; it is one that outlived VPP
	// Other: it is a tun, or has a bridge or gateways, which no wire makes.
	Other bool
}

// EndOf is the Linux interface that a request and its dump describe.
func EndOf(m *tapv2.TapCreateV3, d *tapv2.SwInterfaceTapV2Details) *End {
	e := &End{
		Namespace: d.HostNamespace, MAC: d.HostMacAddr, MTU: d.HostMtuSize,
		Persist: m.TapFlags&tapv2.TAP_API_FLAG_PERSIST != 0, Attach: m.TapFlags&tapv2.TAP_API_FLAG_ATTACH != 0,
		Other: m.TapFlags&tapv2.TAP_API_FLAG_TUN != 0 || m.HostBridgeSet || m.HostIP4GwSet || m.HostIP6GwSet,
	}
	if m.HostIP4PrefixSet {
		e.Addrs = append(e.Addrs, netip.PrefixFrom(netip.AddrFrom4(m.HostIP4Prefix.Address), int(m.HostIP4Prefix.Len)))
	}
	if m.HostIP6PrefixSet {
		e.Addrs = append(e.Addrs, netip.PrefixFrom(netip.AddrFrom16(m.HostIP6Prefix.Address), int(m.HostIP6Prefix.Len)))
	}
	return e
}

// V3 is a request of the older version.
func V3(m *tapv2.TapCreateV2) *tapv2.TapCreateV3 {
	return &tapv2.TapCreateV3{
		ID: m.ID, UseRandomMac: m.UseRandomMac, MacAddress: m.MacAddress, TxRingSz: m.TxRingSz, RxRingSz: m.RxRingSz,
		HostMtuSet: m.HostMtuSet, HostMtuSize: m.HostMtuSize, HostMacAddrSet: m.HostMacAddrSet, HostMacAddr: m.HostMacAddr,
		HostIP4PrefixSet: m.HostIP4PrefixSet, HostIP4Prefix: m.HostIP4Prefix, HostIP6PrefixSet: m.HostIP6PrefixSet,
		HostIP6Prefix: m.HostIP6Prefix, HostIP4GwSet: m.HostIP4GwSet, HostIP6GwSet: m.HostIP6GwSet, TapFlags: m.TapFlags,
		HostNamespaceSet: m.HostNamespaceSet, HostNamespace: m.HostNamespace,
		HostIfNameSet: m.HostIfNameSet, HostIfName: m.HostIfName, HostBridgeSet: m.HostBridgeSet, HostBridge: m.HostBridge, Tag: m.Tag,
	}
}

// Details is what a dump shows of the host side of the tap with a number, without the numbers that VPP gives.
func Details(m *tapv2.TapCreateV3, id uint32) tapv2.SwInterfaceTapV2Details {
	name := fmt.Sprintf("tap%d", id)
	d := tapv2.SwInterfaceTapV2Details{
		TxRingSz: cmp.Or(m.TxRingSz, 256), RxRingSz: cmp.Or(m.RxRingSz, 256), TapFlags: m.TapFlags, HostMacAddr: frame.DerivedMAC("host-" + name), HostIfName: name,
	}
	if m.HostMtuSet {
		d.HostMtuSize = m.HostMtuSize
	}
	if m.HostMacAddrSet {
		d.HostMacAddr = m.HostMacAddr
	}
	if m.HostIP4PrefixSet {
		d.HostIP4Prefix = m.HostIP4Prefix
	}
	if m.HostIP6PrefixSet {
		d.HostIP6Prefix = m.HostIP6Prefix
	}
	if m.HostNamespaceSet {
		d.HostNamespace = text(m.HostNamespace)
	}
	if m.HostIfNameSet {
		d.HostIfName = text(m.HostIfName)
	}
	if m.HostBridgeSet {
		d.HostBridge = text(m.HostBridge)
	}
	return d
}

// text is a string of a fixed length.
func text(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}
