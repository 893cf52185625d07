package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// SourceCheck states from which addresses a pod may send (ADR 13).
type SourceCheck uint8

// The source checks.
const (
	// SourceStrict drops a pod's packets from any address but the pod's.
	SourceStrict SourceCheck = iota
	// SourceAllowed also lets a pod send from the prefixes that its endpoint allows (allow_spoofed_source_prefixes).
	SourceAllowed
	// SourceOff checks nothing.
	SourceOff
)

// Felix's setting that turns SourceStrict into SourceAllowed (v3.31).
const (
	configSpoofing  = "WorkloadSourceSpoofing"
	spoofingAllowed = "Any"
)

// sources is the source check of an interface: the prefixes that its pod may send from, or those that no host behind it has
// (outside.go); each sorted, one of them empty. Nil checks nothing.
//
// A pod without any other list has one list, which permits these prefixes and reflects nothing. A pod with lists has the check in
// front of its input, as rules that deny all other prefixes: a list has no "continue".
type sources struct{ from, not []netip.Prefix }

func (c *sources) same(o *sources) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(c.from, o.from) && slices.Equal(c.not, o.not)
}

// covers reports whether c lets pass every packet that o does.
func (c *sources) covers(o *sources) bool {
	switch {
	case c == nil:
		return true
	case o == nil:
		return false
	}
	if len(c.not)+len(o.not) > 0 {
		return len(c.from)+len(o.from) == 0 && netset.EachWithin(c.not, o.not)
	}
	return netset.EachWithin(o.from, c.from)
}

// The tables of a source check, without the interface's name.
const (
	sourceOnly  = "source-only-"  // permits the pod's prefixes, and denies the rest
	sourceFirst = "source-check-" // denies all but the pod's prefixes
)

// linkLocal are the addresses of neighbour discovery (RFC 4291, 2.5.6): whole bytes, for every VPP.
var linkLocal = netip.MustParsePrefix("fe80::/64") // read only

// checkOf returns the source check of an interface.
func (r *Renderer) checkOf(i *iface) *sources {
	if r.cfg.SourceCheck == SourceOff || len(i.addrs) == 0 {
		return nil
	}
	c := &sources{}
	for _, a := range i.addrs {
		c.from = append(c.from, netip.PrefixFrom(a, a.BitLen()))
	}
	if r.allowsSources() {
		for _, w := range i.work {
			c.from = append(c.from, w.allowed...) // masked
		}
	}
	c.from = netset.Separate(c.from)
	return c
}

// allowsSources reports whether the prefixes that endpoints allow count.
func (r *Renderer) allowsSources() bool { return r.cfg.SourceCheck == SourceAllowed || r.spoofing }

// setSpoofing takes whether Felix's settings let pods send from the prefixes their endpoints allow.
func (r *Renderer) setSpoofing(allowed bool) {
	if r.spoofing == allowed {
		return
	}
	r.spoofing = allowed
	r.refuser.moved = true
	for _, i := range r.ifaces {
		r.dirty.ifaces[i] = struct{}{}
	}
}

// checked puts the source check into the lists of an interface.
func (r *Renderer) checked(i *iface, l lists) lists {
	for _, t := range []string{sourceOnly, sourceFirst} {
		r.unfix(t + nameOf(i.name))
	}
	c := r.checkOf(i)
	if c == nil {
		return l
	}
	l.check = c
	name, write := sourceFirst, r.denyOthers
	if len(l.in)+len(l.out) == 0 {
		name, write = sourceOnly, r.permitOnly
	}
	t := &table{name: name + nameOf(i.name)}
	write(t, c)
	r.fixTable(t)
	l.in = append([]place{{table: t.name, source: true}}, l.in...)
	return l
}

// permitOnly writes the check as the only table of a list. Its last rules, which deny the rest, count the dropped packets.
func (r *Renderer) permitOnly(t *table, c *sources) {
	discovery(t, c)
	own := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the pod's own address"}
	for _, p := range c.from {
		r.addWide(t, match.Atom{Verb: match.Admit, Src: p, Dst: match.FamilyOf(p.Addr()).All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, own)
	}
	for _, f := range match.Families {
		t.add(match.Atom{Verb: match.Deny, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, c.cause())
	}
}

// denyOthers writes the check as the first table of a list.
func (r *Renderer) denyOthers(t *table, c *sources) {
	discovery(t, c)
	for _, f := range match.Families {
		for _, p := range netset.Rest(nil, f.All(), c.of(f)) {
			r.addWide(t, match.Atom{Verb: match.Deny, Src: p, Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, c.cause())
		}
	}
}

// discovery permits neighbour discovery, which IPv6 does from link-local addresses and, for duplicates, from no address.
func discovery(t *table, c *sources) {
	if !slices.ContainsFunc(c.from, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return
	}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "neighbour discovery"}
	for _, types := range []match.Span{{Lo: 133, Hi: 133}, {Lo: 135, Hi: 136}} {
		a := icmpAtom(match.V6, 0)
		a.Src, a.SrcPorts = linkLocal, types
		t.add(a, cause)
	}
	a := icmpAtom(match.V6, 135)
	a.Src = netip.PrefixFrom(netip.IPv6Unspecified(), 128)
	t.add(a, cause)
}

// of returns the prefixes of a family, sorted.
func (c *sources) of(f match.Family) (out []netip.Prefix) {
	for _, p := range c.from {
		if match.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

func (c *sources) cause() *dataplane.Cause {
	if len(c.not) > 0 {
		return &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "from outside, under an address that only this node has"}
	}
	return &dataplane.Cause{Kind: dataplane.CauseSource, Denied: true}
}

// IsSourceCheck reports whether an ACL of that name is a source check: its denying rules drop packets that are not from the pod, or packets
// from outside with an address of the node's.
func IsSourceCheck(acl string) bool { return isSource(acl) }

// isSource reports whether a table belongs to a source check.
func isSource(table string) bool {
	return strings.HasPrefix(table, sourceOnly) || strings.HasPrefix(table, sourceFirst) || strings.HasPrefix(table, outsideOnly) || strings.HasPrefix(table, outsideFirst)
}

// unchecked returns the part of an input list behind its source check.
func unchecked(list []place) []place {
	if len(list) > 0 && list[0].source {
		return list[1:]
	}
	return list
}

// checkEffect returns the effect of another source check.
func checkEffect(old, now *sources) effect {
	if old.same(now) {
		return effect{}
	}
	return effect{opens: !old.covers(now), closes: !now.covers(old)}
}

// commonInput returns an input list that lets pass only what both lists do.
func commonInput(old, now lists) []place {
	rest := commonDirection(unchecked(old.in), unchecked(now.in))
	front := func(l lists) (place, bool) { // a check that can precede other tables
		if len(l.in) > 1 && l.in[0].source {
			return l.in[0], true
		}
		return place{}, false
	}
	switch {
	case old.check == nil && now.check == nil:
		return rest
	case old.check != nil && now.check != nil && !old.check.same(now.check) && old.in[0].table != now.in[0].table:
		return shut()
	case none(rest) && now.check == nil:
		return old.in
	case none(rest):
		return now.in // its table becomes the common part
	}
	for _, l := range []lists{now, old} {
		if p, ok := front(l); ok {
			return append([]place{p}, rest...)
		}
	}
	return shut()
}

// shut returns a list that lets nothing pass.
func shut() []place {
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
	return []place{{table: denyAll, denies: true, cause: cause}}
}

// sourceNotes notes the endpoints that allow sources which the check does not.
func (r *Renderer) sourceNotes(i *iface) (notes []model.Note) {
	if r.cfg.SourceCheck == SourceOff || r.allowsSources() {
		return nil
	}
	for _, w := range i.work {
		if len(w.allowed) > 0 {
			reason := fmt.Sprintf("allowed source prefixes: %s: the source check of this agent is strict: packets from them are dropped", w.allowed[0])
			notes = append(notes, model.Note{Ref: w.ref(), Reason: reason, Refused: true})
		}
	}
	return notes
}
