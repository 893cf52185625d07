package descriptor

import (
	"slices"

	"go.fd.io/govpp/binapi/acl_types"
)

// The order law of access lists. A packet is judged by the first rule that matches, in the lists of the interface one after
// the other. What changes by one message changes in one moment. If more than one thing changes that an interface stands on,
// packets meet states in between, and that is harmless only if every change goes the same way: then the verdict of each
// packet changes at most once, from what it was to what it will be.

// tornLists tells whether the changes of the ACLs in have, and that of the lists themselves, go different ways.
func tornLists(has, wants any, change func(key string) (have, want any)) bool {
	have := has.(*accessLists)
	want := &accessLists{}
	if wants != nil {
		want = wants.(*accessLists)
	}
	acls := func(key string) (*accessList, *accessList) {
		h, w := change(key)
		if h == nil || w == nil {
			return nil, nil
		}
		return h.(*accessList), w.(*accessList)
	}
	in, out := directionOf(have.in, want.in, acls), directionOf(have.out, want.out, acls)
	return in&out == 0
}

// ways are the directions in which a change may go: bits.
type ways uint8

const (
	gains ways = 1 << iota // what passed passes
	loses                  // what passes passed
	same  = gains | loses
)

// directionOf is the way of one direction: the ACLs of have as they change, and the list to want. Of a list whose members
// change nothing is told.
func directionOf(have, want []string, change func(string) (*accessList, *accessList)) ways {
	out := same
	for _, k := range have {
		if h, w := change(k); h != nil {
			out &= wayOf(h.rules, w.rules)
		}
	}
	switch {
	case len(have) == 0 && len(want) == 0:
		return out
	case len(want) == 0:
		return out & gains // no list: all pass
	case len(have) == 0:
		return out & loses
	}
	if !slices.Equal(have, want) {
		return 0
	}
	return out
}

// wayOf is the way from rules to rules: both, one, or none that can be told.
//
// A rule that permits and reflects, put anywhere, only makes more pass; one that permits only may hide one that reflects,
// and stop replies. A rule that denies, put anywhere, only makes less pass.
func wayOf(have, want []acl_types.ACLRule) ways {
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
	if onlyGains(have, want, true) || onlyGains(have, want, false) {
		out |= gains
	}
	if onlyGains(want, have, true) || onlyGains(want, have, false) {
		out |= loses
	}
	return out
}

// onlyGains tells that want is have without some rules that deny, and with more that reflect. Where either would do, it
// looks only at removing first, or only at inserting first: no may be wrong, yes is not.
func onlyGains(have, want []acl_types.ACLRule, removeFirst bool) bool {
	for len(have) > 0 || len(want) > 0 {
		removable := len(have) > 0 && have[0].IsPermit == acl_types.ACL_ACTION_API_DENY
		insertable := len(want) > 0 && want[0].IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT
		switch {
		case len(have) > 0 && len(want) > 0 && have[0] == want[0]:
			have, want = have[1:], want[1:]
		case removable && (removeFirst || !insertable):
			have = have[1:]
		case insertable:
			want = want[1:]
		default:
			return false
		}
	}
	return true
}
