package sim

import "net/netip"

// connected returns the routes of an interface address (ip4_add_interface_routes): the address itself is VPP's. Its subnet is
// attached: up to length 30 without its first and last address, at length 31 with the other end attached.
func connected(f *iface, p netip.Prefix) map[netip.Prefix]path {
	host := p.Addr().BitLen()
	routes := map[netip.Prefix]path{}
	if p.Bits() < host {
		subnet := p
		if p.Addr().Is6() {
			subnet = p.Masked()
		}
		routes[subnet] = path{swIf: f.index, weight: 1, glean: true}
	}
	switch {
	case !p.Addr().Is4():
	case p.Bits() <= 30:
		for _, a := range []netip.Addr{p.Masked().Addr(), lastAddr(p)} {
			routes[netip.PrefixFrom(a, 32)] = path{typ: PathDrop, swIf: noIndex, weight: 1}
		}
	case p.Bits() == 31:
		a := p.Addr().As4()
		a[3] ^= 1
		other := netip.AddrFrom4(a)
		routes[netip.PrefixFrom(other, 32)] = path{swIf: f.index, via: other, weight: 1}
	}
	delete(routes, netip.PrefixFrom(p.Addr(), host))
	return routes // VPP keeps the host bits of an IPv4 subnet
}

func lastAddr(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(a)
}

func (v *VPP) addConnected(f *iface, p netip.Prefix) {
	t := v.fib[family(p.Addr())].findTable(f.table[family(p.Addr())])
	for r, via := range connected(f, p) {
		t.hold(r, srcInterface, []path{via})
	}
	t.setRoute(netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), srcInterface, []path{{typ: PathLocal, swIf: f.index, weight: 1}})
}

func (v *VPP) delConnected(f *iface, p netip.Prefix) {
	t := v.fib[family(p.Addr())].findTable(f.table[family(p.Addr())])
	t.unset(netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), srcInterface)
	for r := range connected(f, p) {
		t.releaseRoute(r, srcInterface)
	}
}
