package renderer

import "net/netip"

// Families are address families. On a node each family belongs to one service renderer, which serves an address of the family or
// notes why it does not. The zero value is no family.
type Families struct {
	IPv4, IPv6 bool
}

// Has reports whether the family of an address is among them.
func (f Families) Has(a netip.Addr) bool { return a.Is4() && f.IPv4 || a.Is6() && f.IPv6 }

// Without returns the families that are not in o.
func (f Families) Without(o Families) Families {
	return Families{IPv4: f.IPv4 && !o.IPv4, IPv6: f.IPv6 && !o.IPv6}
}
