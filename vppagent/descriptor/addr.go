package descriptor

import (
	"fmt"
	"net"
	"net/netip"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// Parse4 parses an IPv4 address.
func Parse4(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return netip.Addr{}, fmt.Errorf("%s: %q is not an IPv4 address", field, s)
	}
	return a, nil
}

// ParseAddr parses an address of either family, without zone.
func ParseAddr(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s: %q is not an IP address", field, s)
	}
	return a.Unmap(), nil
}

// ParsePrefix parses <address>/<length>; host bits are kept.
func ParsePrefix(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s: %q is not <address>/<prefix length>", field, s)
	}
	return p, nil
}

// ParseMAC parses a MAC address of 6 bytes; "" is all zero.
func ParseMAC(field, s string) (mac [6]byte, err error) {
	if s == "" {
		return mac, nil
	}
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return mac, fmt.Errorf("%s: %q is not a MAC address", field, s)
	}
	return [6]byte(hw), nil
}

// MACText is "02:fe:00:00:00:01".
func MACText(mac [6]byte) string { return ethernet_types.MacAddress(mac).String() }

// ToUnion returns an address in VPP's form without a family.
func ToUnion(a netip.Addr) (u ip_types.AddressUnion) {
	if a.Is4() {
		u.SetIP4(a.As4())
	} else if a.IsValid() {
		u.SetIP6(a.As16())
	}
	return u
}

// FromUnion is the inverse of ToUnion.
func FromUnion(u ip_types.AddressUnion, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16(u.GetIP6())
	}
	return netip.AddrFrom4(u.GetIP4())
}

// ToAddress returns an address in VPP's form.
func ToAddress(a netip.Addr) ip_types.Address {
	out := ip_types.Address{Un: ToUnion(a)}
	if a.Is6() {
		out.Af = ip_types.ADDRESS_IP6
	}
	return out
}

// FromAddress is the inverse of ToAddress.
func FromAddress(a ip_types.Address) netip.Addr { return FromUnion(a.Un, a.Af == ip_types.ADDRESS_IP6) }

// ClearUnused zeroes the bytes that an IPv4 address leaves unused. It changes the address in place, because a round of rechecks reads all rules.
func ClearUnused(a *ip_types.Address) {
	if a.Af != ip_types.ADDRESS_IP6 {
		a.Af = ip_types.ADDRESS_IP4
		clear(a.Un.XXX_UnionData[net.IPv4len:])
	}
}

// ToPrefix returns a prefix in VPP's form.
func ToPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: ToAddress(p.Addr()), Len: uint8(p.Bits())}
}

// FromPrefix is the inverse of ToPrefix.
func FromPrefix(p ip_types.Prefix) netip.Prefix {
	return netip.PrefixFrom(FromAddress(p.Address), int(p.Len))
}
