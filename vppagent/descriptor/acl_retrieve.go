package descriptor

import (
	"fmt"
	"slices"
	"strings"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/contiv-agent/contiv-agent/kv"
)

// retrieveACLs finds our ACLs by their tags. Where VPP has several of one name, because an agent ended between making the
// new one and removing the old, the one that is as wanted counts, and the others are stale.
func retrieveACLs(w *World, d *Dump, c Candidates) ([]Found, error) {
	all, err := details[*vppacl.ACLDetails](d, idACLs)
	if err != nil {
		return nil, err
	}
	hashed := map[string]*accessList{} // candidates whose name is hashed in their tag
	c.Each(func(_ string, state any, wanted bool) {
		l := state.(*accessList)
		if _, name, _ := parseTag(l.tag, "a", true); name != l.name && (hashed[name] == nil || wanted) {
			hashed[name] = l
		}
	})
	w.acls.clear(func(key string) bool { return !fixed(key) })
	clear(w.acls.rules)
	for _, m := range all {
		w.acls.count(m.ACLIndex, len(m.R))
	}
	var out []Found
	copies := map[string]int{} // position in out
	for _, m := range all {
		tag := text(m.Tag)
		_, name, ours := parseTag(tag, "a", true)
		if !ours {
			if !strings.HasPrefix(tag, owner) {
				out = append(out, Found{Foreign: true, Text: fmt.Sprintf("acl %d tag %q: %d rules", m.ACLIndex, tag, len(m.R))})
			}
			continue
		}
		l := foundACL(m, tag, name, hashed[name], c)
		if i, again := copies[l.key]; again {
			out[i].State = w.preferred(out[i].State.(*accessList), l, m.ACLIndex, c)
			continue
		}
		copies[l.key] = len(out)
		w.acls.set(l.key, m.ACLIndex)
		out = append(out, Found{Key: l.key, State: l, Ours: true})
	}
	return out, nil
}

// foundACL is the state of a dumped ACL: that of a candidate if it is no other.
func foundACL(m *vppacl.ACLDetails, tag, name string, hashed *accessList, c Candidates) *accessList {
	for i := range m.R {
		clearUnused(&m.R[i])
	}
	l := &accessList{key: kv.ACLKey(name), name: name, rules: m.R, tag: tag}
	if hashed != nil {
		l.key, l.name = hashed.key, hashed.name
	}
	if want, ok := c.Wanted(l.key).(*accessList); ok && sameRules(l, want) {
		return want
	}
	return l
}

// preferred is the better of two states of one ACL, beside which the other is stale.
func (w *World) preferred(has, other *accessList, index uint32, c Candidates) *accessList {
	old := w.acls.index[has.key]
	wanted, _ := c.Wanted(has.key).(*accessList)
	best := *has
	if wanted != nil && sameRules(other, wanted) && !sameRules(has, wanted) {
		best = *other
		best.stale = append(slices.Clone(has.stale), old)
		w.acls.set(best.key, index)
		return &best
	}
	w.acls.set(best.key, index)
	w.acls.set(best.key, old)
	best.stale = append(slices.Clone(has.stale), index)
	return &best
}

// clearUnused zeroes the bytes of IPv4 addresses that mean nothing.
func clearUnused(r *acl_types.ACLRule) {
	r.SrcPrefix, r.DstPrefix = toPrefix(fromPrefix(r.SrcPrefix)), toPrefix(fromPrefix(r.DstPrefix))
}

// clear forgets the ACLs with such keys.
func (t *aclTable) clear(which func(key string) bool) {
	for index, key := range t.key {
		if which(key) {
			t.forget(index)
		}
	}
}
