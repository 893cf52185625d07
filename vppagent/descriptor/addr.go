package descriptor

import (
	"fmt"
	"net"
	"net/netip"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// parse4 parses an IPv4 address.
func parse4(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return netip.Addr{}, fmt.Errorf("%s: %q is not an IPv4 address", field, s)
	}
	return a, nil
}

// parseAddr parses an address of either family, without zone.
func parseAddr(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s: %q is not an IP address", field, s)
	}
	return a.Unmap(), nil
}

// parsePrefix parses <address>/<length>; host bits are kept.
func parsePrefix(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s: %q is not <address>/<prefix length>", field, s)
	}
	return p, nil
}

// parseMAC parses a MAC address of 6 bytes; "" is all zero.
func parseMAC(field, s string) (mac [6]byte, err error) {
	if s == "" {
		return mac, nil
	}
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return mac, fmt.Errorf("%s: %q is not a MAC address", field, s)
	}
	return [6]byte(hw), nil
}

func macText(mac [6]byte) string { return ethernet_types.MacAddress(mac).String() }

func toUnion(a netip.Addr) (u ip_types.AddressUnion) {
	if a.Is4() {
		u.SetIP4(a.As4())
	} else if a.IsValid() {
		u.SetIP6(a.As16())
	}
	return u
}

func fromUnion(u ip_types.AddressUnion, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16(u.GetIP6())
	}
	return netip.AddrFrom4(u.GetIP4())
}

func toAddress(a netip.Addr) ip_types.Address {
	out := ip_types.Address{Un: toUnion(a)}
	if a.Is6() {
		out.Af = ip_types.ADDRESS_IP6
	}
	return out
}

func fromAddress(a ip_types.Address) netip.Addr { return fromUnion(a.Un, a.Af == ip_types.ADDRESS_IP6) }

func toPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: toAddress(p.Addr()), Len: uint8(p.Bits())}
}

func fromPrefix(p ip_types.Prefix) netip.Prefix {
	return netip.PrefixFrom(fromAddress(p.Address), int(p.Len))
}
