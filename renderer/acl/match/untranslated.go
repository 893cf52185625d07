package match

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Untranslated reports whether a clause may match IPv4 packets of SCTP or UDP-Lite, which nat44 does not translate.
func (c *Clause) Untranslated() bool {
	return !slices.ContainsFunc(c.Matches, func(m *Match) bool {
		return m.Version == felix.IPVersion_IPV6 || m.ICMP != nil || m.Proto >= 0 && m.Proto != SCTP && m.Proto != UDPLite ||
			!m.Src.reaches(V4) || !m.Dst.reaches(V4)
	})
}

// AllowsSCTPTo reports whether a clause allows SCTP by name to a network, except that of all addresses, with one of some prefixes.
func (c *Clause) AllowsSCTPTo(prefixes []netip.Prefix) bool {
	names := func(m *Match) bool {
		return slices.ContainsFunc(m.Dst.Nets, func(n netip.Prefix) bool {
			return n.Bits() > 0 && slices.ContainsFunc(prefixes, n.Overlaps)
		})
	}
	return c.Verb == Allow && slices.ContainsFunc(c.Matches, func(m *Match) bool { return m.Proto == SCTP }) && slices.ContainsFunc(c.Matches, names)
}
