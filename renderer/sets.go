package renderer

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// IPAddresses is a set of IP addresses. An IPv4 address is the same in its 4 and its 16 byte form. The zero value is an
// empty set, and a nil pointer can be read as one; assignment shares the contents, Copy does not.
type IPAddresses struct {
	addrs []netip.Addr // sorted, free of duplicates
}

// NewIPAddresses returns a set of the given addresses; it omits elements that are not addresses (wrong length).
func NewIPAddresses(addrs ...net.IP) *IPAddresses {
	list := make([]netip.Addr, 0, len(addrs))
	for _, ip := range addrs {
		list = append(list, addrOf(ip))
	}
	return IPAddressesOf(list...)
}

// IPAddressesOf is NewIPAddresses for netip addresses; it omits invalid ones and drops zones.
func IPAddressesOf(addrs ...netip.Addr) *IPAddresses {
	if len(addrs) == 0 {
		return &IPAddresses{}
	}
	list := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if a.IsValid() {
			list = append(list, a.Unmap().WithZone(""))
		}
	}
	if len(list) > 1 {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	return &IPAddresses{addrs: slices.Compact(list)}
}

// Add adds an address to the set; a slice that is not an address (wrong length) changes nothing.
func (addrs *IPAddresses) Add(addr net.IP) {
	a := addrOf(addr)
	if !a.IsValid() {
		return
	}
	if at, found := slices.BinarySearchFunc(addrs.addrs, a, netip.Addr.Compare); !found {
		addrs.addrs = slices.Insert(addrs.addrs, at, a)
	}
}

// Del removes an address from the set.
func (addrs *IPAddresses) Del(addr net.IP) {
	if addrs == nil {
		return
	}
	if at, found := slices.BinarySearchFunc(addrs.addrs, addrOf(addr), netip.Addr.Compare); found {
		addrs.addrs = slices.Delete(addrs.addrs, at, at+1)
	}
}

// Has reports whether the address is in the set.
func (addrs *IPAddresses) Has(addr net.IP) bool { return addrs.Contains(addrOf(addr)) }

// Contains is Has for a netip address.
func (addrs *IPAddresses) Contains(addr netip.Addr) bool {
	if addrs == nil || len(addrs.addrs) == 0 || !addr.IsValid() {
		return false
	}
	addr = addr.Unmap()
	if addr.Less(addrs.addrs[0]) || addrs.addrs[len(addrs.addrs)-1].Less(addr) { // most sets have adjacent addresses
		return false
	}
	_, found := slices.BinarySearchFunc(addrs.addrs, addr, netip.Addr.Compare)
	return found
}

// Copy returns a set that shares nothing with this one.
func (addrs *IPAddresses) Copy() *IPAddresses {
	return &IPAddresses{addrs: slices.Clone(addrs.Addrs())}
}

// List is the set as a slice, IPv4 before IPv6 and then by value; the caller may keep and change it.
func (addrs *IPAddresses) List() []net.IP {
	list := make([]net.IP, 0, addrs.Len())
	for _, a := range addrs.Addrs() {
		list = append(list, a.AsSlice())
	}
	return list
}

// Addrs is List as netip addresses, not to be changed.
func (addrs *IPAddresses) Addrs() []netip.Addr {
	if addrs == nil {
		return nil
	}
	return addrs.addrs
}

// Len is the number of addresses.
func (addrs *IPAddresses) Len() int { return len(addrs.Addrs()) }

// Equal reports whether both sets hold the same addresses; nil and empty are equal.
func (addrs *IPAddresses) Equal(o *IPAddresses) bool {
	return addrs == o || slices.Equal(addrs.Addrs(), o.Addrs())
}

// String is "[10.96.0.1 10.96.0.10]", in List's order.
func (addrs IPAddresses) String() string {
	words := make([]string, len(addrs.addrs))
	for i, a := range addrs.addrs {
		words[i] = a.String()
	}
	return "[" + strings.Join(words, " ") + "]"
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// Interfaces is a set of names of VPP interfaces. A nil set can be read, not added to.
type Interfaces map[string]struct{}

// NewInterfaces returns a set of the given names.
func NewInterfaces(ifNames ...string) Interfaces {
	ifs := make(Interfaces, len(ifNames))
	for _, name := range ifNames {
		ifs.Add(name)
	}
	return ifs
}

// Add adds a name to the set.
func (ifs Interfaces) Add(ifName string) { ifs[ifName] = struct{}{} }

// Copy returns a set that shares nothing with this one.
func (ifs Interfaces) Copy() Interfaces {
	c := make(Interfaces, len(ifs))
	maps.Copy(c, ifs)
	return c
}

// Del removes a name from the set.
func (ifs Interfaces) Del(ifName string) { delete(ifs, ifName) }

// Has reports whether the name is in the set.
func (ifs Interfaces) Has(ifName string) bool {
	_, has := ifs[ifName]
	return has
}

// Names is the set as a sorted slice.
func (ifs Interfaces) Names() []string { return slices.Sorted(maps.Keys(ifs)) }

// String is "[tap0 tap1]", sorted.
func (ifs Interfaces) String() string { return "[" + strings.Join(ifs.Names(), " ") + "]" }
