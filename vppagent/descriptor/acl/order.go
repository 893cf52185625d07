package acl

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"go.fd.io/govpp/binapi/acl_types"
)

// The order law of access lists. The first rule that matches, in the lists of the interface one after the other, decides about a
// packet. One message changes its object in one moment. If several objects change that an interface stands on, packets meet
// states in between. Those are harmless only if all changes go in the same direction: then the verdict of each packet changes at
// most once, from the old to the new one.

// tornLists reports whether the changes of the ACLs in have, and the change of the lists themselves, go in different directions.
func tornLists(w *descriptor.World, has, wants any, content func(key string) (have, want any)) bool {
	have := has.(*accessLists)
	want := &accessLists{}
	if wants != nil {
		want = wants.(*accessLists)
	}
	if have.keepIn || have.keepOut { // a kept list may have older content
		return true
	}
	c := contents(func(key string) (h, w *accessList) {
		hs, ws := content(key)
		h, _ = hs.(*accessList)
		w, _ = ws.(*accessList)
		return h, w
	})
	var v attached
	if i, ok := w.Interface(have.iface); ok {
		v = factsOf(w).lists[i.Index]
	}
	return c.way(have.in, want.in, foreignACLs(w, v.in))&c.way(have.out, want.out, foreignACLs(w, v.out)) == 0
}

// ways are the directions of a change, as bits.
type ways uint8

const (
	gains ways = 1 << iota // every packet that passed still passes
	loses                  // every packet that passes passed before
	same  = gains | loses
)

// contents returns the actual state of an ACL, and its state before the list changes; nil: none.
type contents func(key string) (have, want *accessList)

// way returns the direction of one direction's change: first the ACLs of have change, then the list becomes want.
func (c contents) way(have, want []string, foreign []uint32) ways {
	out, alike := same, len(foreign) == 0 && c.agree(have, want)
	for _, k := range have {
		if h, w := c(k); h != nil && w != nil && h != w {
			out &= w.wayFrom(h, alike)
		}
	}
	switch {
	case slices.Equal(have, want):
		return out
	case len(foreign) > 0 && len(have)*len(want) == 0: // then the foreign ACLs decide
		return 0
	case len(want) == 0:
		return out & gains // no list: every packet passes
	case len(have) == 0:
		return out & loses
	}
	var list ways
	if c.onlyGains(have, want, alike) {
		list |= gains
	}
	if c.onlyGains(want, have, alike) {
		list |= loses
	}
	return out & list
}

// wayFrom returns the direction of the change from have; it remembers its last answer, because many lists ask for the same.
func (l *accessList) wayFrom(have *accessList, alike bool) ways {
	if l.asked.from != have || l.asked.alike != alike {
		l.asked.from, l.asked.alike, l.asked.way = have, alike, wayOf(have.rules, l.rules, alike)
	}
	return l.asked.way
}

// onlyGains reports that want is have without some ACLs that only deny, and with additional ACLs that only reflect or, if all
// permitting rules are alike, only permit.
func (c contents) onlyGains(have, want []string, alike bool) bool {
	for len(have) > 0 || len(want) > 0 {
		switch {
		case len(have) > 0 && len(want) > 0 && have[0] == want[0]:
			have, want = have[1:], want[1:]
		case len(want) > 0 && !slices.Contains(have, want[0]) && c.all(want[0], func(r *acl_types.ACLRule) bool { return insertable(r, alike) }):
			want = want[1:]
		case len(have) > 0 && !slices.Contains(want, have[0]) && c.all(have[0], removable):
			have = have[1:]
		default:
			return false
		}
	}
	return true
}

// all reports that every rule of an ACL has a property, when the list changes.
func (c contents) all(key string, is func(*acl_types.ACLRule) bool) bool {
	h, w := c(key)
	if w == nil {
		w = h
	}
	return w != nil && !slices.ContainsFunc(w.rules, func(r acl_types.ACLRule) bool { return !is(&r) })
}

// insertable reports that a rule, inserted anywhere, only makes more packets pass.
func insertable(r *acl_types.ACLRule, alike bool) bool {
	return r.IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT || alike && r.IsPermit == acl_types.ACL_ACTION_API_PERMIT
}

// removable reports that the removal of a rule only makes more packets pass.
func removable(r *acl_types.ACLRule) bool { return r.IsPermit == acl_types.ACL_ACTION_API_DENY }

// wayOf returns the directions of the change between two rule lists: both, one, or none if none is provable.
//
// A rule that permits and reflects, inserted anywhere, only makes more packets pass. A rule that only permits may hide one that
// reflects, and stop replies, unless all permitting rules are alike (see sessions). A rule that denies, inserted anywhere, only
// makes fewer packets pass.
func wayOf(have, want []acl_types.ACLRule, alike bool) ways {
	for len(have) > 0 && len(want) > 0 && have[0] == want[0] {
		have, want = have[1:], want[1:]
	}
	for len(have) > 0 && len(want) > 0 && have[len(have)-1] == want[len(want)-1] {
		have, want = have[:len(have)-1], want[:len(want)-1]
	}
	if len(have) == 0 && len(want) == 0 {
		return same
	}
	var out ways
	if onlyGains(have, want, alike, true) || onlyGains(have, want, alike, false) {
		out |= gains
	}
	if onlyGains(want, have, alike, true) || onlyGains(want, have, alike, false) {
		out |= loses
	}
	return out
}

// onlyGains reports that want is have without some rules that deny, and with additional rules that permit. If either would do, it
// tries only removals first, or only insertions first: false may be wrong, true is not.
func onlyGains(have, want []acl_types.ACLRule, alike, removeFirst bool) bool {
	for len(have) > 0 || len(want) > 0 {
		remove := len(have) > 0 && removable(&have[0])
		insert := len(want) > 0 && insertable(&want[0], alike)
		switch {
		case len(have) > 0 && len(want) > 0 && have[0] == want[0]:
			have, want = have[1:], want[1:]
		case remove && (removeFirst || !insert):
			have = have[1:]
		case insert:
			want = want[1:]
		default:
			return false
		}
	}
	return true
}
