package lists

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Check is the source check of an interface: the prefixes that its pod may send from, or those that no host behind it has
// (package outside); each sorted, one of them empty. Nil checks nothing.
//
// A pod without any other list has one list, which permits these prefixes and reflects nothing. A pod with lists has the check in
// front of its input, as rules that deny all other prefixes: a list has no "continue".
type Check struct{ From, Not []netip.Prefix }

// Same reports whether two checks are equal.
func (c *Check) Same(o *Check) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(c.From, o.From) && slices.Equal(c.Not, o.Not)
}

// Covers reports whether c lets pass every packet that o does.
func (c *Check) Covers(o *Check) bool {
	switch {
	case c == nil:
		return true
	case o == nil:
		return false
	}
	if len(c.Not)+len(o.Not) > 0 {
		return len(c.From)+len(o.From) == 0 && netset.EachWithin(c.Not, o.Not)
	}
	return netset.EachWithin(o.From, c.From)
}

// linkLocal are the addresses of neighbour discovery (RFC 4291, 2.5.6): whole bytes, for every VPP.
var linkLocal = netip.MustParsePrefix("fe80::/64") // read only

// discovery permits neighbour discovery, which IPv6 does from link-local addresses and, for duplicates, from no address.
func discovery(t *table.Table, c *Check) {
	if !slices.ContainsFunc(c.From, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return
	}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "neighbour discovery"}
	for _, types := range []match.Span{{Lo: 133, Hi: 133}, {Lo: 135, Hi: 136}} {
		a := table.ICMPAtom(match.V6, 0)
		a.Src, a.SrcPorts = linkLocal, types
		t.Add(a, cause)
	}
	a := table.ICMPAtom(match.V6, 135)
	a.Src = netip.PrefixFrom(netip.IPv6Unspecified(), 128)
	t.Add(a, cause)
}

// Of returns the prefixes of a family, sorted.
func (c *Check) Of(f match.Family) (out []netip.Prefix) {
	for _, p := range c.From {
		if match.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

// Cause returns the cause of the denials.
func (c *Check) Cause() *dataplane.Cause {
	if len(c.Not) > 0 {
		return &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "from outside, under an address that only this node has"}
	}
	return &dataplane.Cause{Kind: dataplane.CauseSource, Denied: true}
}

// CommonInput returns an input list that lets pass only what both lists do. If one of them makes sessions of all packets, because the output has lists
// that answers have to pass, it does so as well.
func CommonInput(old, now Lists) []Place {
	rest := CommonDirection(Unchecked(old.In), Unchecked(now.In))
	front := func(l Lists) (Place, bool) { // a check that can precede other tables
		if len(l.In) > 1 && l.In[0].SourceCheck {
			return l.In[0], true
		}
		return Place{}, false
	}
	switch {
	case old.Check == nil && now.Check == nil:
		return rest
	case old.Check != nil && now.Check != nil && !old.Check.Same(now.Check) && old.In[0].Table != now.In[0].Table:
		return shut()
	case None(rest) && now.Check == nil:
		return old.In
	case None(rest) && len(rest) > 0 && len(now.In) == 1 && strings.HasPrefix(now.In[0].Table, table.OutsideOnly):
		p := now.In[0] // it makes no session
		p.Table = table.OutsideFirst + strings.TrimPrefix(p.Table, table.OutsideOnly)
		return append([]Place{p}, rest...)
	case None(rest) && (len(rest) == 0 || !old.Check.Same(now.Check)):
		return now.In // its table becomes the common part
	}
	for _, l := range []Lists{now, old} {
		if p, ok := front(l); ok {
			return append([]Place{p}, rest...)
		}
	}
	return shut()
}

// PermitOnly writes the check as the only table of a list. Its last rules, which deny the rest, count the dropped packets.
func (c *Check) PermitOnly(t *table.Table, wholeBytes bool) {
	discovery(t, c)
	own := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the pod's own address"}
	for _, p := range c.From {
		t.AddWide(match.Atom{Verb: match.Admit, Src: p, Dst: match.FamilyOf(p.Addr()).All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, own, wholeBytes)
	}
	for _, f := range match.Families {
		t.Add(match.Atom{Verb: match.Deny, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, c.Cause())
	}
}

// DenyOthers writes the check as the first table of a list.
func (c *Check) DenyOthers(t *table.Table, wholeBytes bool) {
	discovery(t, c)
	for _, f := range match.Families {
		for _, p := range netset.Rest(nil, f.All(), c.Of(f)) {
			t.AddWide(match.Atom{Verb: match.Deny, Src: p, Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, c.Cause(), wholeBytes)
		}
	}
}
