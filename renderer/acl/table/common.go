package table

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Denies reports whether a table denies. All rules of a table have one verb, except in mixed tables.
func (t *Table) Denies() bool { return len(t.Rules) > 0 && t.Rules[0].Verb == match.Deny }

// Mixed reports whether a table both denies and permits: then it always has the same place in its list.
func (t *Table) Mixed() bool {
	for i := range t.Rules {
		if (t.Rules[i].Verb == match.Deny) != t.Denies() {
			return true
		}
	}
	return false
}

// Common returns the rules of both tables if they permit, of either if they deny.
func Common(old, now *Table) *Table {
	mixed := old.Mixed() || now.Mixed()
	switch {
	case mixed:
	case now.Denies() && !old.Denies():
		return now
	case old.Denies() && !now.Denies():
		return old
	}
	start, end := Alike(old.Rules, now.Rules)
	out := &Table{Name: now.Name, Egress: now.Egress, join6: now.join6}
	out.Grow(len(now.Rules) + len(old.Rules) - start - end)
	out.Append(now, 0, start)
	if had, has := old.between(start, end), now.between(start, end); mixed {
		out.takeCommonMixed(had, has)
	} else {
		out.takeCommon(had, has)
	}
	out.Append(now, len(now.Rules)-end, len(now.Rules))
	if len(out.Rules) == 0 { // some agents cannot handle an ACL without rules
		nobody := netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 32)
		out.Add(match.Atom{Verb: match.Deny, Src: nobody, Dst: nobody, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true})
	}
	return out
}

// between returns a table without the given numbers of rules at the beginning and at the end.
func (t *Table) between(start, end int) *Table {
	return &Table{Rules: t.Rules[start : len(t.Rules)-end], Causes: t.Causes[start : len(t.Causes)-end]}
}

// takeCommon appends the rules of both tables if they permit, of either if they deny. All rules have one verb.
func (t *Table) takeCommon(old, now *Table) {
	count := map[match.Atom]int{}
	for _, a := range old.Rules {
		count[a]++
	}
	denies := old.Denies() || now.Denies() // one of them may be empty
	for i, a := range now.Rules {
		had := count[a] > 0
		if count[a]--; had || denies {
			t.Append(now, i, i+1)
		}
	}
	for i, a := range old.Rules {
		if denies && count[a] > 0 {
			count[a]--
			t.Append(old, i, i+1)
		}
	}
}

// takeCommonMixed puts all denials first: for a packet that none of them matches, either table decides by its permissions alone.
func (t *Table) takeCommonMixed(old, now *Table) {
	had := map[match.Atom]bool{}
	for i, a := range old.Rules {
		if had[a] = true; a.Verb == match.Deny {
			t.Append(old, i, i+1)
		}
	}
	for i, a := range now.Rules {
		if a.Verb == match.Deny && !had[a] {
			t.Append(now, i, i+1)
		}
	}
	for i, a := range now.Rules {
		if a.Verb != match.Deny && had[a] {
			t.Append(now, i, i+1)
		}
	}
}
