package acl

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"go.fd.io/govpp/binapi/acl_types"
)

// The order law of access lists. A packet is judged by the first rule that matches, in the lists of the interface one after
// the other. What changes by one message changes in one moment. If more than one thing changes that an interface stands on,
// packets meet states in between, and that is harmless only if every change goes the same way: then the verdict of each
// packet changes at most once, from what it was to what it will be.

// tornLists reports whether the changes of the ACLs in have, and that of the lists themselves, go different ways.
func tornLists(w *descriptor.World, has, wants any, content func(key string) (have, want any)) bool {
	have := has.(*accessLists)
	want := &accessLists{}
	if wants != nil {
		want = wants.(*accessLists)
	}
	if have.keepIn || have.keepOut { // what is kept may be of an older content
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

// ways are the directions in which a change may go: bits.
type ways uint8

const (
	gains ways = 1 << iota // what passed passes
	loses                  // what passes passed
	same  = gains | loses
)

// contents tells what VPP has of an ACL, and what it will have before the list is changed; nil: nothing.
type contents func(key string) (have, want *accessList)

// way is the way of one direction: the ACLs of have as they change, then the list to want.
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
	case len(foreign) > 0 && len(have)*len(want) == 0: // then theirs decide
		return 0
	case len(want) == 0:
		return out & gains // no list: all pass
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

// wayFrom is the way from have; many lists ask for the same.
func (l *accessList) wayFrom(have *accessList, alike bool) ways {
	if l.asked.from != have || l.asked.alike != alike {
		l.asked.from, l.asked.alike, l.asked.way = have, alike, wayOf(have.rules, l.rules, alike)
	}
	return l.asked.way
}

// onlyGains reports that want is have without some ACLs that only deny, and with more that only reflect, or if what permits is
// alike everywhere, only permit.
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

// all reports that every rule of an ACL is like that, when the list is changed.
func (c contents) all(key string, is func(*acl_types.ACLRule) bool) bool {
	h, w := c(key)
	if w == nil {
		w = h
	}
	return w != nil && !slices.ContainsFunc(w.rules, func(r acl_types.ACLRule) bool { return !is(&r) })
}

// insertable reports that a rule, put anywhere, only makes more pass.
func insertable(r *acl_types.ACLRule, alike bool) bool {
	return r.IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT || alike && r.IsPermit == acl_types.ACL_ACTION_API_PERMIT
}

// removable reports that without a rule only more passes.
func removable(r *acl_types.ACLRule) bool { return r.IsPermit == acl_types.ACL_ACTION_API_DENY }

// wayOf is the way from rules to rules: both, one, or none that can be told.
//
// A rule that permits and reflects, put anywhere, only makes more pass; one that permits only may hide one that reflects,
// and stop replies, unless all rules that permit are alike (see sessions). A rule that denies, put anywhere, only makes less pass.
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

// onlyGains reports that want is have without some rules that deny, and with more that permit. Where either would do, it
// looks only at removing first, or only at inserting first: no may be wrong, yes is not.
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
