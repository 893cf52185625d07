package kv

import (
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	contivcnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	contivpolicer "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/iptables"
	linuxl3 "github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/ipsec"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
)

// Key returns the canonical key of a message, "" if its type has no model.
//
// ligato joins prefix and name with path.Join, so Key cleans names as paths: the label "a//b/../c" has the key
// .../dnat44/a/c. An empty name, or one that leads upwards, gives a key outside the model's prefix: see Check.
func Key(m proto.Message) string {
	switch m := m.(type) {
	case *nat.DNat44: // first, because a node has thousands of them
		return clean(dnat44Prefix + m.GetLabel())
	case *nat.Nat44Global:
		return Nat44GlobalKey
	case *contivnat.Nat44Settings:
		return Nat44SettingsKey
	case *contivlinux.Handover:
		return HandoverKey
	case *contivlinux.NodePorts:
		return NodePortsKey
	case *contivcnat.SnatPolicy:
		return SnatPolicyKey
	case *l3.IPScanNeighbor:
		return IPScanNeighborKey
	case *l3.ProxyARP:
		return ProxyARPKey
	}
	var buf [128]byte // on the stack: only the string is allocated
	b := appendNAT(buf[:0], m)
	if len(b) == 0 {
		b = appendL3(b, m)
	}
	if len(b) == 0 {
		b = appendL2(b, m)
	}
	if len(b) == 0 {
		b = appendLinux(b, m)
	}
	if len(b) == 0 {
		b = appendRest(b, m)
	}
	return clean(string(b))
}

// appendNAT appends prefix and name of a NAT value; nothing for other types.
func appendNAT(b []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *nat.Nat44Interface:
		return append(append(b, nat44InterfacePrefix...), m.GetName()...)
	case *nat.Nat44AddressPool:
		b = append(b, nat44PoolPrefix...)
		if name := m.GetName(); name != "" {
			return append(b, name...)
		}
		b = appendUint(append(b, "vrf/"...), m.GetVrfId())
		b = append(append(b, "/address/"...), m.GetFirstIp()...)
		if last := m.GetLastIp(); last != "" && last != m.GetFirstIp() {
			b = append(append(b, '-'), last...)
		}
		return b
	case *nat.Nat44VrfTable:
		return appendUint(append(b, nat44VrfPrefix+"vrfid/"...), m.GetSrcVrfId())
	case *nat.Nat44VrfRoute:
		b = appendUint(append(b, nat44VrfRoutePrefix+"vrfid/"...), m.GetSrcVrfId())
		return appendUint(append(b, "/destvrfid/"...), m.GetDestVrfId())
	case *contivcnat.Translation:
		return appendTranslation(b, m)
	case *contivcnat.Interface:
		return append(append(b, cnatInterfacePrefix...), m.GetName()...)
	case *contivnat.SourceRanges:
		return append(append(b, sourceRangesPrefix...), m.GetLabel()...)
	case *contivpolicer.Policer:
		return appendPair(append(b, policerPrefix...), m.GetInterface(), "/", m.GetDirection().String())
	}
	return b
}

// appendTranslation appends the key of a translation, made of the fields by which VPP distinguishes translations.
func appendTranslation(b []byte, m *contivcnat.Translation) []byte {
	b = append(b, translationPrefix...)
	vip := m.GetVip()
	switch a, err := netip.ParseAddr(vip.GetAddress()); {
	case vip.GetInterface() != "":
		b = appendPair(b, vip.GetInterface(), "/", vip.GetFamily().String())
	case err != nil || a.Zone() != "":
		b = append(b, "<invalid>"...)
	default:
		b = a.Unmap().AppendTo(b)
	}
	b = appendUint(append(b, '/'), vip.GetPort())
	return append(append(b, '/'), m.GetProtocol().String()...)
}

// appendL3 appends prefix and name of a routing value; nothing for other types.
func appendL3(b []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *l3.Route:
		return appendRoute(b, m.GetOutgoingInterface(), m.GetVrfId(), m.GetDstNetwork(), m.GetNextHopAddr())
	case *contivl3.RejectRoute:
		b = appendUint(append(b, rejectRoutePrefix+"vrf/"...), m.GetVrfId())
		return appendNetwork(append(b, "/dst/"...), m.GetDstNetwork())
	case *l3.ARPEntry:
		return appendPair(append(b, arpPrefix...), m.GetInterface(), "/", m.GetIpAddress())
	case *l3.VrfTable:
		b = appendUint(append(b, vrfTablePrefix+"id/"...), m.GetId())
		return append(append(b, "/protocol/"...), m.GetProtocol().String()...)
	case *l3.L3XConnect:
		return appendPair(append(b, l3xconnectPrefix...), m.GetInterface(), "/protocol/", m.GetProtocol().String())
	case *l3.DHCPProxy:
		b = appendPair(append(b, dhcpProxyPrefix...), family(m.GetSourceIpAddress()), "/rx-vrf/", "")
		return appendUint(b, m.GetRxVrfId())
	case *l3.TeibEntry:
		return appendPair(append(b, teibPrefix...), m.GetInterface(), "/peer/", m.GetPeerAddr())
	case *l3.VRRPEntry:
		b = appendPair(append(b, vrrpPrefix...), m.GetInterface(), "/vrid/", "")
		return appendUint(b, m.GetVrId())
	}
	return b
}

// appendL2 appends prefix and name of an interface, a bridge or an ACL; nothing for other types.
func appendL2(b []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *interfaces.Interface:
		return append(append(b, interfacePrefix...), m.GetName()...)
	case *interfaces.Span:
		return appendPair(append(b, spanPrefix...), m.GetInterfaceFrom(), "/to/", m.GetInterfaceTo())
	case *acl.ACL:
		return append(append(b, aclPrefix...), m.GetName()...)
	case *contivacl.InterfaceACLs:
		return append(append(b, interfaceACLsPrefix...), m.GetInterface()...)
	case *contivacl.SCTPPorts:
		return append(append(b, sctpPortsPrefix...), m.GetInterface()...)
	case *l2.BridgeDomain:
		return append(append(b, bridgeDomainPrefix...), m.GetName()...)
	case *l2.FIBEntry:
		return appendPair(append(b, l2FIBPrefix...), m.GetBridgeDomain(), "/mac/", m.GetPhysAddress())
	case *l2.XConnectPair:
		return append(append(b, xconnectPrefix...), m.GetReceiveInterface()...)
	}
	return b
}

// appendLinux appends prefix and name of a value of the host; nothing for other types.
func appendLinux(b []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *linuxinterfaces.Interface:
		return append(append(b, linuxInterfacePrefix...), m.GetName()...)
	case *linuxl3.ARPEntry:
		return appendPair(append(b, linuxARPPrefix...), m.GetInterface(), "/", m.GetIpAddress())
	case *linuxl3.Route:
		b = append(b, linuxRoutePrefix...)
		if dst := m.GetDstNetwork(); isNetwork(dst) {
			b = appendNetwork(b, dst)
		} else { // ligato does not write "<invalid>" in these keys
			b = append(b, dst...)
		}
		return append(append(b, '/'), m.GetOutgoingInterface()...)
	case *contivlinux.NodePort:
		return appendUint(appendPair(b, NodePortPrefix, m.GetProtocol().String(), "/"), m.GetPort())
	case *iptables.RuleChain:
		return append(append(b, ruleChainPrefix...), m.GetName()...)
	case *contivlinux.HostPort:
		b = appendPair(append(b, hostPortPrefix...), m.GetProtocol().String(), "/", m.GetHostAddress())
		return appendUint(append(b, '/'), m.GetHostPort())
	}
	return b
}

func isNetwork(s string) bool {
	_, _, err := net.ParseCIDR(s)
	return err == nil
}

// appendRest appends prefix and name of forwarding by ACLs, IPsec and punting; nothing for other types.
func appendRest(b []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *abf.ABF:
		return appendUint(append(b, abfPrefix...), m.GetIndex())
	case *ipsec.SecurityAssociation:
		return appendUint(append(b, saPrefix...), m.GetIndex())
	case *ipsec.SecurityPolicyDatabase:
		return appendUint(append(b, spdPrefix...), m.GetIndex())
	case *punt.Exception:
		return append(append(b, exceptionPrefix+"reason/"...), m.GetReason()...)
	case *punt.IPRedirect:
		return appendPair(append(b, ipRedirectPrefix+"l3/"...), m.GetL3Protocol().String(), "/tx/", m.GetTxInterface())
	case *punt.ToHost:
		b = appendPair(append(b, toHostPrefix+"l3/"...), m.GetL3Protocol().String(), "/l4/", m.GetL4Protocol().String())
		return appendUint(append(b, "/port/"...), m.GetPort())
	}
	return b
}

// appendRoute appends the key of a route. It writes the gateway as given and the destination in canonical form: ligato
// does so, and both use the same keys.
func appendRoute(b []byte, iface string, vrf uint32, dst, gateway string) []byte {
	b = append(b, routePrefix...)
	if iface != "" {
		b = append(append(append(b, "if/"...), iface...), '/')
	}
	b = appendUint(append(b, "vrf/"...), vrf)
	b = appendNetwork(append(b, "/dst/"...), dst)
	if gateway != "" {
		b = append(append(b, "/gw/"...), gateway...)
	}
	return b
}

// appendNetwork appends a prefix in canonical form, without host bits. Text that is no prefix becomes "<invalid>/0",
// and a reference to an address that is not allocated yet ("alloc:...") is not changed.
func appendNetwork(b []byte, network string) []byte {
	if strings.HasPrefix(network, "alloc:") {
		return append(b, network...)
	}
	p, err := netip.ParsePrefix(network)
	if err != nil {
		return appendLenientNetwork(b, network)
	}
	if !p.Addr().Is4In6() {
		return p.Masked().AppendTo(b)
	}
	// ligato prints an IPv4-mapped address as IPv4 with the prefix length of IPv6.
	b = p.Masked().Addr().Unmap().AppendTo(b)
	return strconv.AppendInt(append(b, '/'), int64(p.Bits()), 10)
}

// appendLenientNetwork handles text that netip refuses and package net, which ligato uses, accepts: leading zeros in
// the length.
func appendLenientNetwork(b []byte, network string) []byte {
	_, n, err := net.ParseCIDR(network)
	if err != nil {
		return append(b, "<invalid>/0"...)
	}
	ones, _ := n.Mask.Size()
	b = append(append(b, n.IP.String()...), '/')
	return strconv.AppendInt(b, int64(ones), 10)
}

// family is IPv4, IPv6 or <invalid>, as ligato spells it in keys.
func family(addr string) string {
	switch ip := net.ParseIP(addr); {
	case ip == nil:
		return "<invalid>"
	case ip.To4() != nil:
		return "IPv4"
	default:
		return "IPv6"
	}
}

func appendUint(b []byte, n uint32) []byte { return strconv.AppendUint(b, uint64(n), 10) }

func appendPair(b []byte, first, between, second string) []byte {
	return append(append(append(b, first...), between...), second...)
}

// clean is path.Clean, but cheap for clean keys. Keys start with a class, never with a slash or a dot, so only text
// after a slash can be unclean.
func clean(key string) string {
	for i := 0; i < len(key); i++ {
		if key[i] != '/' {
			continue
		}
		rest := key[i+1:]
		if rest == "" || rest[0] == '/' || rest == "." || rest == ".." ||
			strings.HasPrefix(rest, "./") || strings.HasPrefix(rest, "../") {
			return path.Clean(key)
		}
	}
	return key
}
