package match

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// region is a part of one side's space: addresses of one family and ports.
type region struct {
	net   netip.Prefix
	ports Span
}

// prefixList are intersected with regions: the prefixes of a rule, or a set's members of one family.
type prefixList interface {
	Covers(p netip.Prefix) bool // one of them contains all of p
	List() []netip.Prefix       // all, sorted by netset.Compare
}

// Prefixes is a short sorted list.
type Prefixes []netip.Prefix

// List returns all prefixes.
func (f Prefixes) List() []netip.Prefix { return f }

// Covers reports whether one of the prefixes contains all of p.
func (f Prefixes) Covers(p netip.Prefix) bool {
	return slices.ContainsFunc(f, func(n netip.Prefix) bool { return n.Bits() <= p.Bits() && n.Contains(p.Addr()) })
}

// ofFamily picks the prefixes of one family.
func ofFamily(nets []netip.Prefix, f Family) Prefixes {
	var out Prefixes
	for _, n := range nets {
		if FamilyOf(n.Addr()) == f {
			out = append(out, n)
		}
	}
	return out
}

// within returns the parts of the regions in the prefixes.
func within(regions []region, by prefixList) []region {
	var out []region
	for _, r := range regions {
		if by.Covers(r.net) {
			out = append(out, r)
			continue
		}
		for _, p := range netset.Inside(by.List(), r.net) {
			out = append(out, region{p, r.ports})
		}
	}
	return out
}

// outside returns the parts of the regions outside all prefixes.
func outside(regions []region, by prefixList) []region {
	var out []region
	for _, r := range regions {
		if by.Covers(r.net) {
			continue
		}
		for _, p := range netset.Rest(nil, r.net, netset.Inside(by.List(), r.net)) {
			out = append(out, region{p, r.ports})
		}
	}
	return out
}

// onPorts returns the parts of the regions with one of the ports.
func onPorts(regions []region, ports []Span) []region {
	var out []region
	for _, r := range regions {
		for _, s := range ports {
			if both, ok := r.ports.And(s); ok {
				out = append(out, region{r.net, both})
			}
		}
	}
	return out
}

// offPorts returns the parts of the regions with none of the ports.
func offPorts(regions []region, ports []Span) []region {
	for _, s := range ports {
		var out []region
		for _, r := range regions {
			for _, left := range r.ports.Minus(s) {
				out = append(out, region{r.net, left})
			}
		}
		regions = out
	}
	return regions
}

// at returns the parts of the regions that are endpoints of a protocol.
func at(regions []region, eps []endpoint, proto uint8) []region {
	var out []region
	for _, r := range regions {
		for _, e := range eps {
			if e.proto != proto || !r.net.Contains(e.addr) {
				continue
			}
			if both, ok := r.ports.And(Span{e.port, e.port}); ok {
				out = append(out, region{netip.PrefixFrom(e.addr, e.addr.BitLen()), both})
			}
		}
	}
	return out
}

// notAt returns the parts of the regions that are no endpoints of a protocol.
func notAt(regions []region, eps []endpoint, proto uint8) []region {
	for _, e := range eps {
		if e.proto != proto {
			continue
		}
		var out []region
		host := netip.PrefixFrom(e.addr, e.addr.BitLen())
		for _, r := range regions {
			if _, hit := r.ports.And(Span{e.port, e.port}); !hit || !r.net.Contains(e.addr) {
				out = append(out, r)
				continue
			}
			for _, p := range netset.Rest(nil, r.net, []netip.Prefix{host}) {
				out = append(out, region{p, r.ports})
			}
			for _, left := range r.ports.Minus(Span{e.port, e.port}) {
				out = append(out, region{host, left})
			}
		}
		regions = out
	}
	return regions
}
