package acl

import (
	"fmt"
	"slices"
	"strings"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// retrieveACLs finds our ACLs by their tags. If VPP has several of one name, because an agent ended between two requests or VPP refused the
// removal of the old ACL, the ACL that equals the desired state is current, among equal ones the one in an interface's lists. Others are stale.
func retrieveACLs(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*vppacl.ACLDetails](d, idACLs)
	if err != nil {
		return nil, err
	}
	hashed := map[string]*accessList{} // candidates whose name is hashed in their tag
	c.Each(func(_ string, state any, wanted bool) {
		l := state.(*accessList)
		if _, name, _ := descriptor.ParseTag(l.tag, "a", true); name != l.name && (hashed[name] == nil || wanted) {
			hashed[name] = l
		}
	})
	factsOf(w).acls.clear(func(key string) bool { return !fixed(key) })
	clear(factsOf(w).acls.rules)
	for _, m := range all {
		factsOf(w).acls.count(m.ACLIndex, len(m.R))
	}
	var out []descriptor.Found
	copies := map[string]int{} // position in out
	for _, m := range all {
		tag := descriptor.FixedText(m.Tag)
		_, name, ours := descriptor.ParseTag(tag, "a", true)
		if !ours {
			if !strings.HasPrefix(tag, descriptor.TagOwner) {
				out = append(out, descriptor.Found{Foreign: true, Text: fmt.Sprintf("acl %d tag %q: %d rules", m.ACLIndex, tag, len(m.R))})
			}
			continue
		}
		l := foundACL(m, tag, name, hashed[name], c)
		if i, again := copies[l.key]; again {
			out[i].State = preferredACL(w, out[i].State.(*accessList), l, m.ACLIndex, c)
			continue
		}
		copies[l.key] = len(out)
		factsOf(w).acls.set(l.key, m.ACLIndex)
		out = append(out, descriptor.Found{Key: l.key, State: l, Ours: true})
	}
	return out, nil
}

// foundACL returns the state of a dumped ACL; it is a candidate's state if they are equal.
func foundACL(m *vppacl.ACLDetails, tag, name string, hashed *accessList, c descriptor.Candidates) *accessList {
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

// preferredACL returns the better of two states of one ACL; the other is then stale.
func preferredACL(w *descriptor.World, has, other *accessList, index uint32, c descriptor.Candidates) *accessList {
	old := factsOf(w).acls.index[has.key]
	wanted, _ := c.Wanted(has.key).(*accessList)
	best := *has
	if wanted != nil && sameRules(other, wanted) && (!sameRules(has, wanted) || isAttached(w, index) && !isAttached(w, old)) {
		best = *other
		best.stale = append(slices.Clone(has.stale), old)
		factsOf(w).acls.set(best.key, index)
		return &best
	}
	factsOf(w).acls.set(best.key, index)
	factsOf(w).acls.set(best.key, old)
	best.stale = append(slices.Clone(has.stale), index)
	return &best
}

// clearUnused zeroes the unused bytes of IPv4 addresses. It changes them in place, because a round of rechecks reads all rules.
func clearUnused(r *acl_types.ACLRule) {
	descriptor.ClearUnused(&r.SrcPrefix.Address)
	descriptor.ClearUnused(&r.DstPrefix.Address)
}

// clear forgets the ACLs with matching keys.
func (t *aclTable) clear(which func(key string) bool) {
	for index, key := range t.key {
		if which(key) {
			t.forget(index)
		}
	}
}
