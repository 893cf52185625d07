package kv

import (
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
)

// The functions below return the key of a value that is known by name only, for references such as dependencies. They
// agree with Key of the value.

// InterfaceKey is the key of the interface with that logical name.
func InterfaceKey(name string) string { return clean(interfacePrefix + name) }

// DNat44Key is the key of the DNat44 with that label.
func DNat44Key(label string) string { return clean(dnat44Prefix + label) }

// Translates reports whether the key is of a value that translates an address and port, by NAT44 or cnat.
func Translates(key string) bool {
	return strings.HasPrefix(key, dnat44Prefix) || strings.HasPrefix(key, translationPrefix)
}

// SourceRangesKey is the key of the source ranges with that label.
func SourceRangesKey(label string) string { return clean(sourceRangesPrefix + label) }

// restrictedPrefix begins the labels of mappings that only some clients may use.
const restrictedPrefix = "restricted/"

// RestrictedLabel is the label of a DNat44 that is in VPP only while the source ranges with the given label are
// enforced. Name distinguishes several DNat44s of one such label; it has no slash.
func RestrictedLabel(label, name string) string { return restrictedPrefix + label + "/" + name }

// Restricts is the label of the source ranges that a DNat44 with that label needs; false if it needs none.
func Restricts(label string) (string, bool) {
	rest, ok := strings.CutPrefix(label, restrictedPrefix)
	if !ok {
		return "", false
	}
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		rest = rest[:i]
	}
	return rest, true
}

// Nat44InterfaceKey is the key of NAT44 on the interface with that logical name.
func Nat44InterfaceKey(name string) string { return clean(nat44InterfacePrefix + name) }

// Nat44PoolKey is the key of the address pool with that name. For a pool without a name use Key.
func Nat44PoolKey(name string) string { return clean(nat44PoolPrefix + name) }

// ACLKey is the key of the access list with that name.
func ACLKey(name string) string { return clean(aclPrefix + name) }

// InterfaceACLsKey is the key of the ordered access lists of the interface with that logical name.
func InterfaceACLsKey(iface string) string { return clean(interfaceACLsPrefix + iface) }

// SCTPPortsKey is the key of the SCTPPorts of the interface with that logical name.
func SCTPPortsKey(iface string) string { return clean(sctpPortsPrefix + iface) }

// sctpPortsACLPrefix begins the names of access lists that permit SCTP whatever its ports.
const sctpPortsACLPrefix = "sctp-ports/"

// SCTPPortsACL is the reserved name of an access list of one direction of an interface. The list permits SCTP between
// the addresses for which SCTPPorts decides about ports. It is in VPP only while that SCTPPorts is, and permits nothing
// otherwise.
func SCTPPortsACL(iface string, input bool) string {
	if input {
		return sctpPortsACLPrefix + "input/" + iface
	}
	return sctpPortsACLPrefix + "output/" + iface
}

// NeedsSCTPPorts is the interface whose SCTPPorts the access list with that name depends on; false if it depends on
// none.
func NeedsSCTPPorts(acl string) (iface string, needs bool) {
	rest, ok := strings.CutPrefix(acl, sctpPortsACLPrefix)
	if !ok {
		return "", false
	}
	for _, direction := range []string{"input/", "output/"} {
		if iface, ok := strings.CutPrefix(rest, direction); ok {
			return iface, true
		}
	}
	return rest, true
}

// ABFKey is the key of the forwarding policy with that number.
func ABFKey(index uint32) string { return abfPrefix + utoa(index) }

// LinuxInterfaceKey is the key of the interface of the host with that logical name.
func LinuxInterfaceKey(name string) string { return clean(linuxInterfacePrefix + name) }

// BridgeDomainKey is the key of the bridge domain with that name.
func BridgeDomainKey(name string) string { return clean(bridgeDomainPrefix + name) }

// ARPKey is the key of the neighbour addr on the interface iface.
func ARPKey(iface, addr string) string { return clean(arpPrefix + iface + "/" + addr) }

// VrfTableKey is the key of a VRF (FIB table).
func VrfTableKey(id uint32, protocol l3.VrfTable_Protocol) string {
	return vrfTablePrefix + "id/" + utoa(id) + "/protocol/" + protocol.String()
}

// RouteKey is the key of a route. The outgoing interface and the gateway may be empty; dst is <address>/<prefix length>
// in any spelling.
func RouteKey(iface string, vrf uint32, dst, gateway string) string {
	var buf [128]byte
	return clean(string(appendRoute(buf[:0], iface, vrf, dst, gateway)))
}

// RejectRouteKey is the key of the reject route for a prefix in any spelling.
func RejectRouteKey(vrf uint32, dst string) string {
	var buf [128]byte
	b := appendUint(append(buf[:0], rejectRoutePrefix+"vrf/"...), vrf)
	return clean(string(appendNetwork(append(b, "/dst/"...), dst)))
}

// Derived values are parts of a value that have separate dependencies. Their keys have no model and are never stored;
// they name the part in a status.

// Nat44EndpointDependentKey is derived from Nat44Global while nat44-ed runs.
const Nat44EndpointDependentKey = "vpp/nat44/endpoint-dependent"

// SourceRangesEnforcedKey is derived from all source ranges and all NAT44 interfaces together. It exists while the
// access list that enforces the ranges is the first of every NAT44 interface.
const SourceRangesEnforcedKey = "vpp/source-ranges/enforced"

// SCTPFilterPrefix begins the keys that SCTPFilterKey returns.
const SCTPFilterPrefix = "vpp/sctp-ports/"

// SCTPFilterKey is derived from SCTPPorts for each direction that has rules; input in VPP's view.
func SCTPFilterKey(iface string, input bool) string {
	return "vpp/" + SCTPPortsACL(iface, input)
}

// interimACLPrefix begins the names of access lists that an interface can do without.
const interimACLPrefix = "interim/"

// InterimACL is the reserved name of an access list that permits only what VPP may also drop for a moment. While VPP does not have the list, an
// interface has its other lists without it.
func InterimACL(name string) string { return interimACLPrefix + name }

// IsInterimACL reports that an access list has such a name.
func IsInterimACL(acl string) bool { return strings.HasPrefix(acl, interimACLPrefix) }

// SCTPFilterOf is the SCTPFilterKey that the access list with that name depends on, "" if the name is not reserved.
func SCTPFilterOf(acl string) string {
	if !strings.HasPrefix(acl, sctpPortsACLPrefix) {
		return ""
	}
	return "vpp/" + acl
}

// InterfaceAddressKey is derived from an interface for each static address, given as <address>/<prefix length>.
func InterfaceAddressKey(name, addr string) string {
	return "vpp/interface/" + name + "/address/static/" + addr
}

// InterfaceVrfKey is derived from an interface for each address family in a VRF.
func InterfaceVrfKey(name string, vrf uint32, ipv6 bool) string {
	version := "v4"
	if ipv6 {
		version = "v6"
	}
	return "vpp/interface/" + name + "/vrf/" + utoa(vrf) + "/ip-version/" + version
}

// podInterface begins the names of interfaces that values make for pods.
const podInterface = "pod:"

// PodInterface is the logical name of a pod's interface: "pod:", the pod as "namespace/name" or a hash of it, a colon and a suffix that
// differs between the attachments of a pod. Until a value states its access lists, nothing passes such an interface.
func PodInterface(pod, suffix string) string { return podInterface + pod + ":" + suffix }

// PodInterfaceOf returns the name of the pod's interface that a value with this key makes; false: it is no such key.
func PodInterfaceOf(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, interfacePrefix)
	return name, ok && IsPodInterface(name)
}

// IsPodInterface reports that a name is one of PodInterface.
func IsPodInterface(name string) bool { return strings.HasPrefix(name, podInterface) }

// InterfaceUnnumberedKey is derived from an interface that uses the addresses of another.
func InterfaceUnnumberedKey(name, lender string) string {
	return "vpp/interface/" + name + "/unnumbered/" + lender
}

// InterfaceHasAddressKey is derived from an interface that has an address.
func InterfaceHasAddressKey(name string) string {
	return "vpp/interface/" + name + "/has-IP-address"
}

// ACLInterfaceKey is derived from an access list for each interface it is attached to. Ingress is VPP's input: packets
// enter VPP there.
func ACLInterfaceKey(acl, iface string, ingress bool) string {
	direction := "egress"
	if ingress {
		direction = "ingress"
	}
	return "vpp/acl/" + acl + "/interface/" + direction + "/" + iface
}

// BridgeDomainInterfaceKey is derived from a bridge domain for each member.
func BridgeDomainInterfaceKey(domain, iface string) string {
	return "vpp/bd/" + domain + "/interface/" + iface
}

// ABFInterfaceKey is derived from an ABF for each interface it is attached to.
func ABFInterfaceKey(index uint32, iface string) string {
	return "vpp/abf/" + utoa(index) + "/interface/" + iface
}

// ProxyARPInterfaceKey is derived from ProxyARP for each of its interfaces.
func ProxyARPInterfaceKey(iface string) string { return "vpp/proxyarp/interface/" + iface }

// Nat44InterfaceFeatureKey is derived from Nat44Global for each of its interfaces.
func Nat44InterfaceFeatureKey(name string, inside bool) string {
	feature := "out"
	if inside {
		feature = "in"
	}
	return "vpp/nat44/interface/" + name + "/feature/" + feature
}

// Nat44AddressKey is derived from Nat44Global for each of its addresses.
func Nat44AddressKey(addr string, twiceNAT bool) string {
	mode := "off"
	if twiceNAT {
		mode = "on"
	}
	return "vpp/nat44/address/" + addr + "/twice-nat/" + mode
}

// Nat44TwiceNATPoolKey is derived from a Nat44AddressPool for twice-NAT. An empty last address means that the pool is
// the first address alone.
func Nat44TwiceNATPoolKey(vrf uint32, first, last string) string {
	key := "vpp/nat44/twiceNAT-pool/vrf/" + utoa(vrf) + "/addresses/" + first
	if last != "" && last != first {
		key += "-" + last
	}
	return key
}

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
