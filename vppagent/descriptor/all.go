package descriptor

import "strings"

// All returns every descriptor, in the order their values are usually needed.
func All() []*Descriptor {
	return []*Descriptor{
		VrfTable(), Interface(), InterfaceVRF(), Address(), ARPEntry(), Route(), RejectRoute(),
		BridgeDomain(), BridgeMember(), L2FIB(), XConnect(), Span(), ProxyARP(), ProxyARPInterface(), IPScanNeighbor(),
		Nat44Global(), Nat44Settings(), Nat44AddressPool(), Nat44Interface(), DNat44(),
		SCTPPorts(), SCTPFilter(),
		ACL(), DenyACL(), RangesACL(), PermitACL(), InterfaceACLs(), SourceRangesEnforced(), SourceRanges(), ABF(), ABFInterface(),
		IPRedirect(), ToHost(), PuntException(),
		SnatPolicy(), CnatInterface(), CnatTranslation(),
	}
}

// Has reports whether key is one of the descriptor's. A star in Prefix stands for a name.
func (d *Descriptor) Has(key string) bool {
	head, tail, star := strings.Cut(d.Prefix, "*")
	switch {
	case star:
		return strings.HasPrefix(key, head) && strings.Contains(key[len(head):], tail)
	case strings.HasSuffix(d.Prefix, "/"):
		return strings.HasPrefix(key, d.Prefix)
	}
	return key == d.Prefix
}
