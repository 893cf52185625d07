package match

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Atom is one line of an ACL: its verb and its match. A clause that allows becomes one line or several, by the law of an interface. Both prefixes are of one family.
// Protocol 0 is any; spans are ports, for ICMP type and code, and for other protocols everything.
type Atom struct {
	Verb
	Src, Dst           netip.Prefix
	Proto              uint8
	SYN                bool // TCP only: packets that begin a connection
	SrcPorts, DstPorts Span
}

// Clause is a set of matches that must all hold, with a verb. A pass becomes part of the following clauses: they also have the
// match of the passing rule.
type Clause struct {
	Verb    // allow or deny
	Matches []*Match
	Cause   *dataplane.Cause
}

// Open reports whether every packet matches.
func (c *Clause) Open() bool {
	for _, m := range c.Matches {
		if !m.Open() {
			return false
		}
	}
	return true
}

// Equal reports whether two clauses consist of the same matches, and have equal verbs and causes.
func (c Clause) Equal(o Clause) bool {
	return c.Verb == o.Verb && slices.Equal(c.Matches, o.Matches) && *c.Cause == *o.Cause
}

// AsksPorts reports whether the clause matches SCTP by its ports.
func (c *Clause) AsksPorts() bool {
	asks := false
	for _, m := range c.Matches {
		if m.Proto >= 0 && m.Proto != SCTP || m.NotProto == SCTP || m.ICMP != nil {
			return false
		}
		asks = asks || !m.Src.anyPort() || !m.Dst.anyPort()
	}
	return asks
}

// Likewise reports whether two clauses have equal matches and verbs.
func (c *Clause) Likewise(o *Clause) bool {
	return c.Verb == o.Verb && slices.Equal(c.Matches, o.Matches)
}

// Misses is a quick check: true: no packet to that address matches. False: unknown.
func (c *Clause) Misses(sets Sets, to netip.Prefix) bool {
	for _, m := range c.Matches {
		if m.Dst.Nets != nil && !Prefixes(m.Dst.Nets).Covers(to) {
			return true
		}
		for _, id := range m.Dst.Sets {
			if s := sets[id]; s.Known() && !s.nets[FamilyOf(to.Addr())].Covers(to) {
				return true
			}
		}
	}
	return false
}
